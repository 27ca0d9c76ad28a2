"""Device files of GPUs in the sandbox: a task opens those of its own GPUs, and no others.

Two devices that every Linux has, and no sandbox shows, stand for GPUs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.worker_link import Run
from loopline_worker import parts
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import LocalGpu, find_gpus
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import SandboxChoice, WorkerSettings
from loopline_worker.task_group import TaskGroup
from tests.worker.bench import Bench, run_of
from tests.worker.caller import Caller
from tests.worker.gpu_trees import UUIDS, add_nvidia

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="device files of Linux")
CANDIDATES = ("/dev/net/tun", "/dev/fuse", "/dev/kvm", "/dev/vsock", "/dev/userfaultfd", "/dev/loop-control")
STANDING_IN = tuple(file for file in CANDIDATES if os.access(file, os.R_OK | os.W_OK))[:2]
OPEN = f"for file in {' '.join(STANDING_IN)}; do (exec 3<> $file) 2>/dev/null && echo $file; done; true"
needs_devices = pytest.mark.skipif(len(STANDING_IN) < 2, reason=f"this container has too few of {CANDIDATES}")


@pytest.fixture
def gpus(tmp_path: Path) -> list[LocalGpu]:
    add_nvidia(tmp_path, "0000:01:00.0", minor=0)
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    found = find_gpus(tmp_path)
    files = STANDING_IN if len(STANDING_IN) > 1 else CANDIDATES[:2]
    return [replace(each, files=(file,), own_file=file) for each, file in zip(found, files, strict=True)]


@pytest.fixture(params=[SandboxChoice.BUBBLEWRAP, SandboxChoice.LANDLOCK, SandboxChoice.OFF])
async def bench(
    request: pytest.FixtureRequest, outside_tmp: Path, tmp_path: Path, gpus: list[LocalGpu]
) -> AsyncIterator[Bench]:
    try:
        sandbox = open_sandbox(request.param)
    except LooplineError as error:
        pytest.skip(error.message)
    async with Bench(outside_tmp, sandbox=sandbox) as bench:
        bench.runner._wings = (Gpus(gpus, GpuLocks(tmp_path), KnownGpus(tmp_path / "gpus.json"), root=tmp_path),)
        yield bench


def opening(*own: str, task: int = 1) -> Run:
    return run_of("bash", "-c", OPEN, task=task, gpus=own)


@needs_devices
async def test_task_opens_the_device_files_of_its_own_gpus_alone(bench: Bench) -> None:
    kept = bench.launcher._sandbox is not None
    for task, own in enumerate(((), UUIDS[:1], UUIDS[1:], UUIDS, ()), start=1):
        opened = [file for uuid, file in zip(UUIDS, STANDING_IN, strict=True) if uuid in own or not kept]
        result = await bench.result(opening(*own, task=task))
        assert result.stdout.data.decode().split() == opened, result


async def test_call_with_a_gpu_has_an_interpreter_of_its_own(bench: Bench) -> None:
    caller = Caller(bench)
    wings = bench.runner._wings

    def seen() -> tuple[int, str]:
        return os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]

    async def call(*own: str) -> tuple[int, str]:
        return await caller.value(seen, gpus=own)

    assert wings
    first, second, again = await call(), await call(UUIDS[0]), await call()
    assert first == again, "calls without GPUs share an interpreter"
    assert [visible for _, visible in (first, second)] == ["", UUIDS[0]]
    third, fourth = await call(UUIDS[0]), await call(UUIDS[1])
    assert [visible for _, visible in (third, fourth)] == [UUIDS[0], UUIDS[1]]
    assert not any(interpreter.key[-1] for interpreter in caller.warm.interpreters.idle), "none keeps a GPU"


async def test_sandbox_that_would_show_a_gpu_to_all_tasks_is_refused(
    tmp_path: Path, gpus: list[LocalGpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ready_gpus", lambda: gpus)
    own, known = gpus[0].own_file, tmp_path / "gpus.json"
    async with TaskGroup() as group:
        for shown in (own, "/dev"):
            settings = WorkerSettings(data_dir=tmp_path, sandbox_shows=(shown,))
            with pytest.raises(LooplineError, match=f"would show {own}, a GPU, to all tasks"):
                parts._gpus(settings, known, group, has_walls=True)
        for more in ({"gpu": "off"}, {"gpu_devices": ("1",)}, {"sandbox": "off"}):
            settings = WorkerSettings(data_dir=tmp_path, sandbox_shows=(own,), **more)
            parts._gpus(settings, known, group, has_walls=True)


def test_resource_named_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="GPUs that are detected"):
        WorkerSettings(data_dir=tmp_path, resources=("gpu=1",))
