"""GPUs on a real grid: the processes alive on each GPU, while agents and the master are killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import psutil

from loopline_shared.model import JobState
from loopline_shared.spec import Requirements
from tests.live.grid import Grid, wait_for
from tests.worker.gpu_trees import UUIDS, add_amd, add_nvidia

MARK = {"LOOPLINE_TEST": "has a GPU"}
AMD = "GPU-73c8a5d4fd3a1c05"


def computer(folder: Path) -> dict[str, str]:
    """Return the settings of a worker on a computer with two GPUs of NVIDIA and one of AMD."""
    add_nvidia(folder, "0000:01:00.0", minor=0)
    add_nvidia(folder, "0000:02:00.0", minor=1, uuid=UUIDS[1])
    add_amd(folder, 1)
    return {"GPU_TREE": str(folder)}


class Watch:
    """The largest number of tasks alive at once on any GPU, as /proc shows them."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self.most = grid, 0

    async def follow(self) -> None:
        while True:
            places = {gpus_and_folder(process) for process in self._grid.processes(**MARK)}
            self.most = max([self.most, *Counter(gpus for gpus, _ in places if gpus).values()])
            await asyncio.sleep(0.01)  # looks all the time


def gpus_and_folder(process: psutil.Process) -> tuple[str, str]:
    """Return the GPUs and the scratch folder of a task's process; empty if it has ended."""
    try:
        environment = process.environ()
    except psutil.Error:
        return "", ""
    return environment.get("LOOPLINE_GPUS", ""), environment.get("LOOPLINE_SCRATCH", "")


async def start(grid: Grid, name: str, settings: dict[str, str]) -> None:
    await grid.start_worker(name, slots=4, settings=settings, module="tests.live.gpu_worker")


async def test_each_task_has_a_gpu_of_its_own_while_agents_and_the_master_are_killed(grid: Grid) -> None:
    settings = computer(grid.folder / "computer")
    for name in ("ant", "bee"):  # two agents of one computer
        await start(grid, name, settings)
    watch = Watch(grid)
    watching = asyncio.create_task(watch.follow())
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
    assert watch.most == 1


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
    assert {gpu: use.attempt.job for gpu, use in worker.gpus_used.items()} == dict.fromkeys(UUIDS, job) | {AMD: other}
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
