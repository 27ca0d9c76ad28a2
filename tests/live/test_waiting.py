"""Short tasks wait at their workers for a slot: begun without a round trip, kept over a kill -9, taken back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline_shared.model import JobState
from loopline_shared.rest.bodies import WorkerView
from tests.live.grid import LEASE_S, SHORTEST_LEASE_S, Grid, wait_for
from tests.live.test_owner import OWNER
from tests.worker.presence.witnesses import move_mouse, x_server


@pytest.fixture
async def grid(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Grid]:
    """A grid whose leases outlast a restart on a busy computer, unless a test wants them to end."""
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--lease-s", str(getattr(request, "param", LEASE_S)), "--report-every-s", "0.5")
        yield grid
        await grid.check()
    finally:
        await grid.stop()


async def worker(grid: Grid, name: str) -> WorkerView | None:
    workers = [worker async for worker in grid.client().workers()]
    return next((worker for worker in workers if worker.name == name), None)


async def queued(grid: Grid, name: str, count: int) -> WorkerView:
    """The worker, once so many attempts wait there beside what runs."""

    async def ask() -> WorkerView | None:
        view = await worker(grid, name)
        return view if view and len(view.waiting) == count and view.running else None

    return await wait_for(f"{count} attempts to wait at {name}", ask)


async def has_written(grid: Grid) -> None:
    async def ask() -> bool:
        return (grid.folder / "begun").exists()

    await wait_for("the first task to begin", ask)


def runs(folder: Path) -> Counter[str]:
    """How often each task was begun, as the tasks themselves wrote down."""
    return Counter((folder / "begun").read_text().split())


async def test_a_bag_of_short_tasks_waits_at_its_worker_and_completes(grid: Grid) -> None:
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"{gate.wait}; head -c 100000 /dev/zero", tasks=8, size=0.08)
    await queued(grid, "ant", 7)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    attempts = await grid.attempts(job)
    assert [(a.id.task, a.id.number, a.worker) for a in attempts] == [(task, 1, "ant") for task in range(1, 9)]
    assert not any(a.state == "prefetched" for a in attempts)
    begun = re.findall(r"attempt (\S+) starts", grid.log("ant"))
    assert begun == [str(a.id) for a in attempts], "in the order in which they came"
    view = await worker(grid, "ant")
    assert view
    assert (view.waiting, view.slots_used) == ([], 0)
    assert view.load is not None
    assert view.load.delay_s is not None, "the link's own traffic tells"
    assert view.load.throughput_bytes_s


async def test_an_agent_that_is_killed_with_a_queue_goes_on_with_it(grid: Grid) -> None:
    """What had begun is given back; what waited is run, under the same number, once."""
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"echo {{i}} >> {grid.folder}/begun; {gate.wait}", tasks=5, size=0.05)
    await queued(grid, "ant", 4)
    await has_written(grid)
    await grid.kill_worker("ant")
    gate.open()
    await grid.start_worker("ant")
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    attempts = await grid.attempts(job)
    assert [(a.id.task, a.id.number, a.state.value) for a in attempts] == [
        (1, 1, "cancelled"),
        (1, 2, "succeeded"),
        *((task, 1, "succeeded") for task in range(2, 6)),
    ]
    assert attempts[0].reason == "its worker's agent had to be started again"
    assert runs(grid.folder) == {"1": 2, "2": 1, "3": 1, "4": 1, "5": 1}


@pytest.mark.parametrize("grid", [SHORTEST_LEASE_S], indirect=True)
async def test_a_queue_that_was_given_elsewhere_meanwhile_is_dropped(grid: Grid) -> None:
    """The agent is away for longer than its lease: the master's answer to its first Report cancels what it kept."""
    gate = grid.gate()
    await grid.start_worker("ant")
    script = f"echo $LOOPLINE_ATTEMPT >> {grid.folder}/begun; {gate.wait}"
    job = await grid.submit(script, tasks=4, size=0.04, max_replicas=1)
    await queued(grid, "ant", 3)
    await has_written(grid)
    await grid.kill_worker("ant")
    await grid.start_worker("bee")
    await grid.attempts_when("bee to have them", job, lambda all_: sum(a.worker == "bee" for a in all_) == 4)
    await grid.start_worker("ant")
    await grid.attempts_when("ant to drop them", job, lambda all_: all(a.ended_at for a in all_ if a.id.number == 1))
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    kept = [f"{job}.{task}.1" for task in range(1, 5)]
    assert [attempt for attempt in kept if attempt in runs(grid.folder)] == kept[:1], (
        "only what began before the kill"
    )


async def test_a_master_that_is_killed_finds_the_queue_again(grid: Grid) -> None:
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=5, size=0.05)
    await queued(grid, "ant", 4)
    await grid.kill_master()
    await grid.start_master()
    await grid.connected("ant")
    await queued(grid, "ant", 4)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert [a.id.number for a in await grid.attempts(job)] == [1] * 5


async def test_the_owner_returns_while_tasks_wait(grid: Grid) -> None:
    """What waits is not stuck behind what stands still: it is given back at once, and runs elsewhere."""
    with x_server() as display:
        await grid.start_worker("ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "600"})
        gate = grid.gate("open-$LOOPLINE_WORKER")
        job = await grid.submit(f"{gate.wait}", tasks=4, size=0.04, max_attempts=1, max_replicas=1)
        await queued(grid, "ant", 3)
        grid.gate("open-bee").open()
        move_mouse(display, 25)
        back = await grid.attempts_when(
            "the rest to be given back", job, lambda all_: sum(a.state == "cancelled" for a in all_) == 3
        )
        assert [(a.id.task, a.state.value) for a in back if a.id.number == 1] == [
            (1, "frozen"),
            (2, "cancelled"),
            (3, "cancelled"),
            (4, "cancelled"),
        ]
        await grid.start_worker("bee")
        await grid.attempts_when("bee to run them", job, lambda all_: sum(a.accepted for a in all_) == 3)
        grid.gate("open-ant").open()
        assert (await grid.ended(job)).state is JobState.SUCCEEDED


@pytest.mark.parametrize("deed", ["drain", "pause"])
async def test_what_has_not_begun_is_taken_back(grid: Grid, deed: str) -> None:
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"{gate.wait}", tasks=3, size=0.03, max_replicas=1)
    await queued(grid, "ant", 2)
    client = grid.client()
    await (client.drain("ant") if deed == "drain" else client.pause(job))
    await grid.attempts_when("two to be dropped", job, lambda all_: sum(a.state == "cancelled" for a in all_) == 2)
    await (client.undrain("ant") if deed == "drain" else client.resume(job))
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


async def test_a_throttled_worker_gets_less(grid: Grid) -> None:
    """Nobody says how long tasks take; what has finished does, and what waits at the slow one moves in the end."""
    for name in ("quick", "slow"):
        await grid.start_worker(name)
    await grid.connected("quick", "slow")
    job = await grid.submit("if [ $LOOPLINE_WORKER = slow ]; then sleep 0.5; else sleep 0.05; fi", tasks=30)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    done = Counter(a.worker for a in await grid.attempts(job) if a.accepted)
    assert done["slow"] < done["quick"] / 2
