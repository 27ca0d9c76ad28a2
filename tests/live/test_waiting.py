"""Prefetched tasks on a real grid: started without a round trip, kept across a kill -9, retracted."""

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
from tests.worker.presence.witnesses import moving_mouse, x_server


@pytest.fixture
async def grid(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Grid]:
    """A grid whose leases outlast a restart on a busy computer, unless a test needs them to end."""
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
    """Return the worker once ``count`` attempts wait there in addition to running ones."""

    async def ask() -> WorkerView | None:
        view = await worker(grid, name)
        return view if view and len(view.waiting) == count and view.running else None

    return await wait_for(f"{count} attempts to wait at {name}", ask)


async def has_written(grid: Grid) -> None:
    async def ask() -> bool:
        return (grid.folder / "begun").exists()

    await wait_for("the first task to begin", ask)


def runs(folder: Path) -> Counter[str]:
    """Return how often each task was started, as recorded by the tasks themselves."""
    return Counter((folder / "begun").read_text().split())


async def test_short_tasks_are_prefetched_and_complete_in_order(grid: Grid) -> None:
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"{gate.wait}; head -c 100000 /dev/zero", tasks=8, size=0.08)
    await queued(grid, "ant", 7)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    attempts = await grid.attempts(job)
    assert [(a.id.task, a.id.number, a.worker) for a in attempts] == [(task, 1, "ant") for task in range(1, 9)]
    assert not any(a.state == "prefetched" for a in attempts)
    begun = re.findall(r"attempt (\S+) .*starts", grid.log("ant"))
    assert begun == [str(a.id) for a in attempts], "in the order of their arrival"
    view = await worker(grid, "ant")
    assert view
    assert (view.waiting, view.slots_used) == ([], 0)

    async def tells_its_link() -> bool:
        load = (await grid.client().worker("ant")).load
        return load is not None and load.delay_s is not None and bool(load.throughput_bytes_s)

    await wait_for("the figures of its link", tells_its_link)


async def test_restarted_agent_continues_with_its_queue(grid: Grid) -> None:
    """The running attempt is given back; waiting attempts run once, with the same numbers."""
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
async def test_agent_drops_its_queue_if_its_tasks_ran_elsewhere(grid: Grid) -> None:
    """The agent is down for longer than its lease: the answer to its first Report cancels its queued attempts."""
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
        "only the attempt started before the kill"
    )


async def test_restarted_master_knows_the_queue(grid: Grid) -> None:
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


async def test_waiting_tasks_run_elsewhere_when_the_owner_returns(grid: Grid) -> None:
    """Waiting attempts are not stuck behind a frozen one: they are given back at once and run elsewhere."""
    with x_server() as display:
        await grid.start_worker("ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "600"})
        gate = grid.gate("open-$LOOPLINE_WORKER")
        job = await grid.submit(f"{gate.wait}", tasks=4, size=0.04, max_attempts=1, max_replicas=1)
        await queued(grid, "ant", 3)
        grid.gate("open-bee").open()
        with moving_mouse(display):
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


@pytest.mark.parametrize("action", ["drain", "pause"])
async def test_drain_and_pause_retract_waiting_tasks(grid: Grid, action: str) -> None:
    gate = grid.gate()
    await grid.start_worker("ant")
    job = await grid.submit(f"{gate.wait}", tasks=3, size=0.03, max_replicas=1)
    await queued(grid, "ant", 2)
    client = grid.client()
    await (client.drain("ant") if action == "drain" else client.pause(job))
    await grid.attempts_when("two to be dropped", job, lambda all_: sum(a.state == "cancelled" for a in all_) == 2)
    await (client.undrain("ant") if action == "drain" else client.resume(job))
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


async def test_throttled_worker_gets_fewer_tasks(grid: Grid) -> None:
    """Sizes are unknown: finished tasks show the speeds, and tasks waiting at the slow worker move eventually."""
    for name in ("quick", "slow"):
        await grid.start_worker(name)
    await grid.connected("quick", "slow")
    job = await grid.submit("if [ $LOOPLINE_WORKER = slow ]; then sleep 3; else sleep 0.05; fi", tasks=30)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    done = Counter(a.worker for a in await grid.attempts(job) if a.accepted)
    assert done["slow"] < done["quick"] / 2
