"""Libraries of NVIDIA's driver for tasks of images, as a list in CDI format names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.environments import image_tool
from loopline_worker.environments.environment import Environment
from loopline_worker.gpus.driver_libraries import driver_libraries
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import find_gpus
from loopline_worker.launch.interface import Job
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import SandboxChoice
from tests.worker.bench import Bench, run_of
from tests.worker.gpu_trees import UUIDS, add_nvidia, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="drivers of Linux")
_LIST = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  mounts:
  - {{hostPath: {folder}/libcuda.so.535.54.03, containerPath: /usr/lib/libcuda.so.535.54.03, options: [ro, bind]}}
  - {{hostPath: {folder}/nvidia-smi, containerPath: /usr/bin/nvidia-smi}}
  - {{hostPath: {folder}/notes.source.key, containerPath: /usr/lib/notes.source.key}}
  - {{hostPath: {folder}/libgone.so.1, containerPath: /usr/lib/libgone.so.1}}
"""


def with_libraries(root: Path, name: str = "etc/cdi/nvidia.yaml") -> Path:
    """Add two libraries of a driver, and a list of one of them and of a program. Return their folder."""
    folder = root / "usr/lib"
    write(folder / "libcuda.so.535.54.03", "the driver's")
    for link, target in (("libcuda.so.1", "libcuda.so.535.54.03"), ("libcuda.so", "libcuda.so.1")):
        (folder / link).symlink_to(target)
    write(folder / "libcuda.so.470.0", "an old one")
    write(folder / "nvidia-smi")
    write(folder / "notes.source.key")
    text = _LIST.format(folder=folder)
    write(root / name, text)
    return folder


@pytest.mark.parametrize("name", ["etc/cdi/nvidia.yaml", "var/run/cdi/nvidia.yml"])
def test_listed_libraries_are_found_with_their_links(tmp_path: Path, name: str) -> None:
    folder = with_libraries(tmp_path, name)
    driver = str(folder / "libcuda.so.535.54.03")
    found = driver_libraries(tmp_path)
    assert set(found) == {"libcuda.so", "libcuda.so.1", "libcuda.so.535.54.03"}
    assert {os.path.realpath(path) for path in found.values()} == {driver}


def test_list_in_json_is_read(tmp_path: Path) -> None:
    folder = with_libraries(tmp_path, "elsewhere")
    listed = {"kind": "nvidia.com/gpu", "containerEdits": {"mounts": [{"hostPath": f"{folder}/libcuda.so.470.0"}]}}
    write(tmp_path / "etc/cdi/nvidia.json", json.dumps(listed))
    assert [*driver_libraries(tmp_path)] == ["libcuda.so.470.0"]


@pytest.mark.parametrize(
    "text",
    ["kind: amd.com/gpu\n", "[", "[" * 5000, "- 1\n", "kind: nvidia.com/gpu\ncontainerEdits: {mounts: [1]}\n", "\0"],
)
def test_other_lists_and_nonsense_add_no_library(tmp_path: Path, text: str) -> None:
    write(tmp_path / "etc/cdi/nvidia.yaml", text)
    write(tmp_path / "etc/cdi/notes.txt", "kind: nvidia.com/gpu")
    assert driver_libraries(tmp_path) == {}


@pytest.mark.parametrize(("first", "second"), [("lib32", "lib64"), ("lib64", "lib32"), ("lib64", "old")])
def test_library_has_the_width_of_the_computer(tmp_path: Path, first: str, second: str) -> None:
    starts = {"lib32": b"\x7fELF\1", "lib64": b"\x7fELF\2", "old": b"\x7fELF\2"}
    paths = [tmp_path / "usr" / name / "libcuda.so.535.54.03" for name in (first, second)]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(starts[path.parent.name])
        (path.parent / "libcuda.so.1").symlink_to(path.name)
    listed = {"kind": "nvidia.com/gpu", "containerEdits": {"mounts": [{"hostPath": str(path)} for path in paths]}}
    write(tmp_path / "etc/cdi/nvidia.json", json.dumps(listed))
    own = str(tmp_path / "usr/lib64/libcuda.so.535.54.03")
    assert driver_libraries(tmp_path) == {"libcuda.so.535.54.03": own, "libcuda.so.1": own}


class _InImage(AgentWing):
    """Has each task run in an image."""

    concerns = ("attempt",)
    is_awake = True

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def prepare(self, run: Run, job: Job) -> AttemptPart | None:
        self._environment.apply(job)
        return None


async def test_task_of_an_image_has_the_libraries_if_it_has_a_gpu(outside_tmp: Path, tmp_path: Path) -> None:
    with_libraries(tmp_path)
    add_nvidia(tmp_path)
    gpus = [replace(each, files=()) for each in find_gpus(tmp_path)]
    async with Bench(outside_tmp, sandbox=open_sandbox(SandboxChoice.BUBBLEWRAP)) as bench:
        root = outside_tmp / "image" / "root"
        shell = Path(os.path.realpath("/bin/sh"))
        needed = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout.split()
        for path in (shell, *(Path(word) for word in needed if word.startswith("/"))):
            copy = root / str(path)[1:] if path != shell else root / "bin/sh"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o755)
        image_tool._add_points(root, bench.scratch)
        environment = Environment(root.parent, 1, is_image=True, variables={"LD_LIBRARY_PATH": "/own"})
        known = KnownGpus(tmp_path / "gpus.json")
        bench.runner._wings = (Gpus(gpus, GpuLocks(tmp_path), known, root=tmp_path), _InImage(environment))
        script = "echo $LD_LIBRARY_PATH; read -r word < /dev/nvidia-driver/libcuda.so.1 || echo $word"
        for task, (own, seen) in enumerate(
            ((UUIDS[:1], "/own:/dev/nvidia-driver\nthe driver's\n"), ((), "/own\n\n"))
        ):
            result = await bench.result(run_of("/bin/sh", "-c", script, task=task + 1, gpus=own))
            assert result.stdout.data.decode() == seen, result
