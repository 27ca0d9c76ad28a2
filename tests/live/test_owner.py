"""An owner returns to a worker of a real grid, with a real X server and real mouse movements."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp

from loopline.cli.common import stdout
from loopline.cli.render import tables
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import WorkerView
from tests.live.grid import Grid, wait_for
from tests.worker.presence.witnesses import moving_mouse, x_server

OWNER = {
    "LOOPLINE_IDLE_S": "1",
    "LOOPLINE_RESERVE_MEMORY_BYTES": "0",
    "LOOPLINE_ON_BATTERY": "1",
    "LOOPLINE_GRACE_S": "0.5",
    "LOOPLINE_YIELD_TO_LOAD": "0",  # other tests run at the same time
}


async def test_task_is_preempted_when_the_owner_returns_and_ends_elsewhere(grid: Grid) -> None:
    """The task is frozen, preempted without using up its only attempt, and run again, with one accepted result."""
    with x_server() as display:
        await grid.start_worker("ant", owner=OWNER | display)
        gate = grid.gate()
        job = await grid.submit(f"{gate.wait}; echo $LOOPLINE_WORKER", max_attempts=1)
        await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
        await grid.start_worker("bee")
        with moving_mouse(display):
            view = await wait_for("the figures", lambda: yielded(grid, "ant"))
            assert view.load
            assert view.load.yielded.p50_s > 0
            await grid.attempts_when("it to be given back", job, lambda all_: all_[0].ended_at is not None)
        gate.open()
        assert (await grid.ended(job)).state == "succeeded"
        assert [a.accepted for a in await grid.attempts(job)][:1] == [False]
        assert sum(a.accepted for a in await grid.attempts(job)) == 1
        await grid.no_processes()
        assert "input that x11 saw" in grid.log("ant")
        await figures_are_shown(grid)


async def test_replica_wins_while_the_original_is_frozen(tmp_path: Path) -> None:
    """Under a policy that never replicates by itself; the frozen loser is killed, and no retry is used up."""
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--lease-s", "60", "--report-every-s", "0.5", "--policy", "first-come")
        with x_server() as display:
            await grid.start_worker("ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "600"})
            gate = grid.gate("open-$LOOPLINE_WORKER")
            job = await grid.submit(f"sleep 1000 & {gate.wait}; echo $LOOPLINE_WORKER", max_attempts=2)
            await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
            await grid.start_worker("bee")
            await grid.connected("ant", "bee")
            assert len(await grid.attempts(job)) == 1
            with moving_mouse(display):
                frozen = await grid.attempts_when("a shadow", job, lambda all_: len(all_) == 2)
                assert [(a.worker, a.state, a.replica) for a in frozen][:1] == [("ant", "frozen", False)]
                assert [(a.worker, a.replica) for a in frozen][1:] == [("bee", True)]
                says = (await grid.client().explain(TaskId(job, 1))).sentence
                assert says == "running on ant (frozen: its owner is there) and bee"
                grid.gate("open-bee").open()
                assert (await grid.ended(job)).state == "succeeded"
                ended = await grid.attempts_when("the loser to end", job, lambda all_: all(a.ended_at for a in all_))
            assert [(a.worker, a.state, a.accepted) for a in ended] == [
                ("ant", "cancelled", False),
                ("bee", "succeeded", True),
            ]
            await grid.no_processes()
        await grid.check()
    finally:
        await grid.stop()


async def yielded(grid: Grid, name: str) -> WorkerView | None:
    workers = [worker async for worker in grid.client().workers()]
    return next((w for w in workers if w.name == name and w.load and w.load.yielded.count), None)


async def figures_are_shown(grid: Grid) -> None:
    """Check the figures in the master's metrics and in the table of workers."""
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(f"{grid.url}/metrics", headers=headers) as answer:
        metrics = await answer.text()
    assert re.search(r'^loopline_owner_yield_seconds\{quantile="0.99",worker="ant"\} \d', metrics, re.MULTILINE)
    assert 'worker="bee"' not in metrics
    workers = [worker async for worker in grid.client().workers()]
    console = stdout()
    with console.capture() as shown:
        console.print(tables.workers(workers))
    assert re.search(r"p50 \d", shown.get())
