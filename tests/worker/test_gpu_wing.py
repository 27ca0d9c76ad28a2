"""The wing for GPUs with real processes: the variables of tasks, and locks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_shared.model import Load, Outcome, WithheldGpu
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.gpus import gpu_wing
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_wing import Gpus, variables
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import find_gpus
from tests.worker.bench import Bench, run_of, until
from tests.worker.gpu_trees import UUIDS, add_amd, add_nvidia, divide

AMD = "GPU-73c8a5d4fd3a1c05"
SHOW = 'echo "$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER|$ROCR_VISIBLE_DEVICES|$LOOPLINE_GPUS"'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "computer"
    add_nvidia(root, "0000:01:00.0", minor=0)
    add_nvidia(root, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    add_amd(root, 1)
    return root


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    return folder


def offering(bench: Bench, tree: Path, locks: Path) -> Gpus:
    """Have a bench's runner offer the GPUs of a tree."""
    wing = Gpus(find_gpus(tree), GpuLocks(locks), KnownGpus(tree / "gpus.json"), root=tree)
    bench.runner._wings = (wing,)
    return wing


def shown(*gpus: str, task: int = 1, script: str = SHOW) -> Run:
    return run_of("sh", "-c", script, task=task, gpus=gpus)


def withheld(wing: Gpus) -> Sequence[WithheldGpu]:
    wing._checked_at = -math.inf
    draft = DraftReport((), Load(1))
    wing.report(draft)
    return draft.load.withheld_gpus


async def test_task_sees_its_own_gpus_alone(bench: Bench, tree: Path, locks: Path) -> None:
    offering(bench, tree, locks)
    result = await bench.result(shown(UUIDS[1], AMD))
    assert result.stdout.data.decode() == f"{UUIDS[1]}|PCI_BUS_ID|{AMD}|{UUIDS[1]},{AMD}\n"


async def test_task_without_gpus_sees_none_whatever_its_job_says(bench: Bench, tree: Path, locks: Path) -> None:
    offering(bench, tree, locks)
    own = {"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0"}
    result = await bench.result(replace(shown(), environment=own))
    assert result.stdout.data == b"|PCI_BUS_ID||\n"


@pytest.mark.parametrize(("has_walls", "seen"), [(True, "0"), (False, "1")])
def test_gpu_without_a_uuid_is_numbered_among_visible_gpus(tmp_path: Path, has_walls: bool, seen: str) -> None:
    add_nvidia(tmp_path, "0000:01:00.0", minor=0)
    add_nvidia(tmp_path, "0000:02:00.0", minor=1, uuid="GPU-????????-????-????-????-????????????")
    first, second = find_gpus(tmp_path)
    assert variables([second], has_walls=has_walls)["CUDA_VISIBLE_DEVICES"] == seen
    assert variables([first], has_walls=has_walls)["CUDA_VISIBLE_DEVICES"] == UUIDS[0]


def test_instances_of_a_divided_gpu_are_visible_and_locked_apart(tmp_path: Path, locks: Path) -> None:
    add_nvidia(tmp_path)
    divide(tmp_path, 0, (1, 0), (2, 0))
    _, first, second = find_gpus(tmp_path)
    assert variables([first], has_walls=True)["CUDA_VISIBLE_DEVICES"] == f"MIG-{UUIDS[0]}/1/0"
    ours, others = GpuLocks(locks), GpuLocks(locks)
    assert ours.acquire(first.place)
    assert not others.acquire(first.place)
    assert others.acquire(second.place)
    for one in (ours, others):
        one.close()


async def test_gpu_is_locked_until_its_task_has_ended(bench: Bench, tree: Path, locks: Path) -> None:
    wing, other = offering(bench, tree, locks), GpuLocks(locks)
    run = shown(UUIDS[0], script="touch begun; read line < /dev/zero")
    await bench.begins(run)
    assert other.is_taken("0000:01:00.0")
    assert not other.acquire("0000:01:00.0")
    assert not other.is_taken("0000:02:00.0")
    assert withheld(wing) == (), "its own tasks are known to the master"
    bench.runner.cancel(run.attempt)
    await bench.end_of(run)
    await until(lambda: not other.is_taken("0000:01:00.0"))


async def test_gpu_that_another_agent_has_is_withheld_and_its_task_given_back(
    bench: Bench, tree: Path, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_wing, "_LOCK_WITHIN_S", 0.1)
    wing, other = offering(bench, tree, locks), GpuLocks(locks)
    assert other.acquire("0000:02:00.0")
    assert withheld(wing) == (WithheldGpu(UUIDS[1], "another worker of this computer has it"),)
    result = await bench.result(shown(UUIDS[0], UUIDS[1]))
    assert result.outcome is Outcome.GIVEN_BACK
    assert result.reason == "GPU 1: another worker of this computer has it"
    await until(lambda: not other.is_taken("0000:01:00.0"))
    other.close()
    assert withheld(wing) == ()


async def test_task_waits_for_the_clean_up_of_the_one_before(bench: Bench, tree: Path, locks: Path) -> None:
    offering(bench, tree, locks)
    other = GpuLocks(locks)
    assert other.acquire("0000:01:00.0")
    run = shown(UUIDS[0])
    bench.runner.start(run)
    await until(lambda: (bench.scratch / str(run.attempt)).exists())
    other.close()
    assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED


async def test_gpu_that_this_worker_lacks_is_refused(bench: Bench, tree: Path, locks: Path) -> None:
    offering(bench, tree, locks)
    result = await bench.result(shown("GPU-elsewhere"))
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "this worker has no GPU GPU-elsewhere")


async def test_gpu_that_left_the_bus_is_withheld_and_refused(bench: Bench, tree: Path, locks: Path) -> None:
    wing = offering(bench, tree, locks)
    (tree / "dev/nvidia0").unlink()
    (gone,) = withheld(wing)
    assert gone.id == UUIDS[0]
    assert "out of service" in gone.reason
    result = await bench.result(shown(UUIDS[0]))
    assert result.outcome is Outcome.GIVEN_BACK


async def test_task_that_is_cancelled_while_it_waits_for_its_gpu_locks_nothing(
    bench: Bench, tree: Path, locks: Path
) -> None:
    offering(bench, tree, locks)
    other = GpuLocks(locks)
    assert other.acquire("0000:02:00.0")
    run = shown(UUIDS[0], UUIDS[1])
    bench.runner.start(run)
    await until(lambda: other.is_taken("0000:01:00.0"))
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    await until(lambda: not other.is_taken("0000:01:00.0"))


def test_locks_of_two_agents_exclude_each_other_and_end_with_them(locks: Path) -> None:
    ours, theirs = GpuLocks(locks), GpuLocks(locks)
    assert ours.acquire("0000:01:00.0")
    assert not ours.acquire("0000:01:00.0"), "also for another attempt of the same agent"
    assert theirs.is_taken("0000:01:00.0")
    assert not ours.is_taken("0000:01:00.0")
    ours.release("0000:01:00.0")
    ours.release("0000:01:00.0")
    assert theirs.acquire("0000:01:00.0")
    theirs.close()
    assert ours.acquire("0000:01:00.0")
    assert [file.stat().st_mode & 0o777 for file in locks.iterdir()] == [0o644]


def test_attempts_of_one_agent_share_a_lock(locks: Path) -> None:
    ours, theirs = GpuLocks(locks), GpuLocks(locks)
    assert [ours.acquire("0000:01:00.0", 2) for _ in range(3)] == [True, True, False]
    ours.release("0000:01:00.0")
    assert not theirs.acquire("0000:01:00.0", 2), "one of them still has it"
    ours.release("0000:01:00.0")
    assert theirs.acquire("0000:01:00.0", 2)


def test_lock_that_cannot_be_made_counts_as_taken(tmp_path: Path) -> None:
    assert GpuLocks(tmp_path / "missing").is_taken("0000:01:00.0")


async def test_lock_that_cannot_be_made_gives_the_task_back(bench: Bench, tree: Path, tmp_path: Path) -> None:
    offering(bench, tree, tmp_path / "missing")
    result = await bench.result(shown(UUIDS[0]))
    assert result.outcome is Outcome.GIVEN_BACK
    assert "cannot lock GPU 0" in result.reason
    assert bench.troubles == [], "other tasks may run"
    await asyncio.sleep(0)
