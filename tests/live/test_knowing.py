"""Health on a real grid: a broken worker enters quarantine and returns, across a restart."""

from __future__ import annotations

from pathlib import Path

from loopline_shared.model import JobState, SizeSource
from loopline_shared.rest.bodies import WorkerView
from tests.live.grid import Grid, wait_for


async def seen(grid: Grid, name: str) -> WorkerView:
    return next(worker for worker in [worker async for worker in grid.client().workers()] if worker.name == name)


async def test_broken_worker_enters_quarantine_and_returns(tmp_path: Path) -> None:
    grid = Grid(tmp_path)
    try:
        flags = ("--policy", "turnaround", "--quarantine-s", "1", "--max-attempts", "4")
        await grid.start_master("--lease-s", "60", "--report-every-s", "0.5", *flags)
        await grid.start_worker("good", slots=2)
        mended = grid.gate("mended")
        script = f'test "$LOOPLINE_WORKER" = good || test -e {mended.file}'
        first = await grid.ended(await grid.submit(script, tasks=8, name="x"))
        assert (first.state, first.size, first.size_source) == (JobState.SUCCEEDED, None, SizeSource.UNKNOWN)
        await grid.start_worker("bad", slots=2)
        await grid.connected("good", "bad")

        async def is_barred() -> bool:
            """More than one job may be needed: the good worker may be faster than the bad one."""
            job = await grid.ended(await grid.submit(script, tasks=12, name="x", max_replicas=1))
            assert job.state is JobState.SUCCEEDED, "one broken worker does not use up a task's attempts"
            assert job.size_source is SizeSource.PREDICTED
            bad = await seen(grid, "bad")
            return bad.quarantine is not None or bad.half_open

        await wait_for("the bad worker to be put into quarantine", is_barred)
        mended.open()
        await grid.kill_master()
        await grid.start_master()

        async def is_back() -> bool:
            """It gets one attempt at a time until a success; not all concurrent successes count."""
            await grid.ended(await grid.submit(script, tasks=12, name="x", max_replicas=1))
            bad, (program,) = await seen(grid, "bad"), [one async for one in grid.client().programs()]
            return bad.quarantine is None and not bad.half_open and bad.health > 0 and "bad" in program.workers

        await wait_for("the bad worker to be trusted again", is_back)
        (program,) = [program async for program in grid.client().programs()]
        assert (program.name, set(program.workers)) == ("x", {"good", "bad"})
        assert program.predicted is not None
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
