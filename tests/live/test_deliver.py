"""Order *deliver* on a real grid: jobs run freely and are delivered in order, across a killed master."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid, wait_for


@pytest.mark.parametrize("policy", ["fair", pytest.param("round-robin", marks=pytest.mark.campaign)])
async def test_computed_job_is_delivered_after_its_predecessor(tmp_path: Path, policy: str) -> None:
    grid = Grid(tmp_path)
    try:
        await grid.start_master(
            "--lease-s", "60", "--report-every-s", "0.5", "--policy", policy, "--order", "deliver"
        )
        await grid.start_worker("ant", slots=2)
        gate = grid.gate()
        first = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=2, size=10, max_replicas=1)
        await grid.attempts_when("the first to run", first, lambda all_: len(all_) == 2)
        await grid.start_worker("bee", slots=2)
        second = await grid.submit("echo {i}", tasks=3, size=10)

        async def is_computed() -> bool:
            view = await grid.job(second)
            return view.tasks.succeeded == 3

        await wait_for("the second job to be computed", is_computed)
        await grid.kill_master()
        await grid.start_master()
        view = await grid.job(second)
        assert (view.state, view.held) == (JobState.RUNNING, True)
        explanation = await grid.client().explain(second)
        what = "it is computed and its output can be fetched, its delivery is held"
        assert explanation.sentence.startswith(
            f"{what}: job {first} (size 10 s) entered the grid before it and is not larger"
        )
        assert b"".join([piece async for piece in grid.client().output(TaskId(second, 3))]) == b"3\n"
        gate.open()
        one, two = await grid.ended(first), await grid.ended(second)
        assert (one.finished_at or 0) <= (two.finished_at or 0)
        assert (await grid.client().passing()).completions == 2
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()
