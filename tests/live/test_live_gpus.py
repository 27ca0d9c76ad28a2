"""GPUs on a real grid: the processes alive on each GPU, while agents and the master are killed."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid, wait_for, watch
from tests.worker.gpu_trees import UUIDS, add_amd, add_nvidia, write

MARK = {"LOOPLINE_TEST": "has a GPU"}
COMPILER = shutil.which("cc")
FAKE_NVML = Path(__file__).parents[1] / "worker" / "fake_nvml.c"
AMD = "GPU-73c8a5d4fd3a1c05"


def computer(folder: Path) -> dict[str, str]:
    """Return the settings of a worker on a computer with two GPUs of NVIDIA and one of AMD."""
    add_nvidia(folder, "0000:01:00.0", minor=0)
    add_nvidia(folder, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    add_amd(folder, 1)
    return {"GPU_TREE": str(folder)}


def gpus_of(environment: Mapping[str, str]) -> str:
    return environment["LOOPLINE_GPUS"]


async def start(grid: Grid, name: str, settings: dict[str, str], owner: dict[str, str] | None = None) -> None:
    await grid.start_worker(name, slots=4, settings=settings, owner=owner, module="tests.live.gpu_worker")


async def test_each_task_has_a_gpu_of_its_own_while_agents_and_the_master_are_killed(grid: Grid) -> None:
    settings = computer(grid.folder / "computer")
    for name in ("ant", "bee"):  # two agents of one computer
        await start(grid, name, settings)
    counts = [0]
    watching = asyncio.create_task(
        watch(grid, MARK, lambda tasks: counts.extend(Counter(map(gpus_of, tasks)).values()))
    )
    script = 'sleep 0.2; echo "$LOOPLINE_GPUS {i}"'
    job = await grid.submit(script, tasks=18, requires=Requirements(gpus=1), environment=MARK)

    async def has_got_so_far() -> bool:
        return (await grid.job(job)).tasks.succeeded >= part

    for part, name in ((2, "ant"), (6, "bee")):
        await wait_for(f"{part} results", has_got_so_far)
        await grid.kill_worker(name)
        await start(grid, name, settings)
    await grid.kill_master()
    await grid.start_master()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    watching.cancel()
    assert max(counts) == 1


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
async def test_task_leaves_its_gpu_to_the_owner_and_runs_on_another(grid: Grid) -> None:
    folder = grid.folder / "computer"
    library, says = folder / "nvml.so", folder / "nvml"
    working = "".join(f"gpu 0000:0{n}:00.0 0 16000000000 8 6 0\n" for n in (1, 2))
    settings = computer(folder) | {"GPU_LIBRARY": str(library), "FAKE_NVML": str(says)}
    command = [COMPILER or "", "-shared", "-fPIC", "-o", str(library), str(FAKE_NVML)]
    await (await asyncio.create_subprocess_exec(*command)).wait()
    write(says, working)
    await start(grid, "ant", settings, owner={"LOOPLINE_POLICY": "always", "LOOPLINE_ON_BATTERY": "1"})
    gate = grid.gate()
    job = await grid.submit(gate.wait, requires=Requirements(gpus=1, gpu_model="RTX A4000"), max_attempts=1)
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))

    async def memory_is_known() -> bool:
        gpus = (await grid.client().worker("ant")).facts.resources[0].gpus
        return {gpu.memory_bytes for gpu in gpus if gpu.id == UUIDS[0]} == {16 * 10**9}

    await wait_for("the memory of the GPU to be known", memory_is_known)
    write(folder / "new", f"{working}use 0000:01:00.0 1 0 90 0\n")
    (folder / "new").replace(says)  # which the worker reads all the time
    first, second = await grid.attempts_when(
        "it to run elsewhere", job, lambda all_: len(all_) == 2 and all_[-1].started_at is not None
    )
    assert (first.gpus, second.gpus) == ([UUIDS[0]], [UUIDS[1]])
    assert first.reason == "GPU 0: another program uses it"
    load = (await grid.client().worker("ant")).load
    assert load
    assert [(gpu.id, gpu.reason) for gpu in load.withheld_gpus] == [(UUIDS[0], "another program uses it")]
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


async def test_workers_view_and_explanation_show_who_has_each_gpu(grid: Grid) -> None:
    await start(grid, "ant", computer(grid.folder / "computer"))
    gate = grid.gate()
    job = await grid.submit(gate.wait, tasks=2, requires=Requirements(gpus=1, gpu_model="RTX A4000"))
    other = await grid.submit(gate.wait, requires=Requirements(gpus=1, gpu_memory_bytes=10**10))
    waiting = await grid.submit("true", requires=Requirements(gpus=2))
    for each, count in ((job, 2), (other, 1)):
        await grid.attempts_when("it to run", each, lambda all_, n=count: sum(bool(a.started_at) for a in all_) == n)
    worker = await grid.client().worker("ant")
    assert worker.resources_used == {"gpu": 3}
    assert {gpu: use.attempt.job for gpu, (use,) in worker.gpus_used.items()} == dict.fromkeys(UUIDS, job) | {
        AMD: other
    }
    assert {gpu.id: gpu.memory_bytes for gpu in worker.facts.resources[0].gpus}[AMD] == 17163091968
    assert (
        "3 of 3 gpu in use on 1 worker (2 are needed on one of them)"
        in (await grid.client().explain(waiting)).sentence
    )
    (attempt,) = await grid.attempts(other)
    assert attempt.gpus == [AMD]
    gate.open()
    for each in (job, other, waiting):
        assert (await grid.ended(each)).state is JobState.SUCCEEDED


async def test_members_of_gangs_have_a_limit_and_gpus_of_their_own_computers(grid: Grid) -> None:
    """Two gangs need all units of the limit, and the GPU of each computer."""
    for place, name in enumerate(("ant", "bee")):
        folder = grid.folder / name
        add_nvidia(folder, f"0000:0{place + 1}:00.0", uuid=UUIDS[place])
        await start(grid, name, {"GPU_TREE": str(folder)})
    await grid.client().set_limit("matlab", 2)
    counts = [0]
    watching = asyncio.create_task(watch(grid, MARK, lambda tasks: counts.append(len(tasks))))
    requires = Requirements(gpus=1, needs={"matlab": 1})
    script = 'sleep 0.2; echo "$LOOPLINE_GPUS"'
    jobs = [await grid.submit(script, nodes=2, requires=requires, environment=MARK) for _ in range(2)]
    for job in jobs:
        assert (await grid.ended(job)).state is JobState.SUCCEEDED
        shown = [
            b"".join([piece async for piece in grid.client().output(TaskId(job, 1), rank=rank)]) for rank in (0, 1)
        ]
        assert {one.decode().strip() for one in shown} == {*UUIDS}
    watching.cancel()
    assert max(counts) <= 2
