"""Health together with queues and quorums: no usable worker stays idle, and no job waits forever."""

from __future__ import annotations

from typing import Any

import pytest

from loopline_master.core.estimates.eta import Forecast, outlook
from loopline_shared.model import JobState, Outcome, Output
from tests.scheduling.driver import Grid, facts

POLICIES = ["first-come", "fair", "turnaround"]


def printed(text: str) -> dict[str, Any]:
    return {"stdout": Output(len(text), data=text.encode()), "cpu_s": 2.0, "wall_s": 2.0}


def make_known(grid: Grid, *names: str) -> None:
    """Let the jobs' program succeed on each of these workers."""
    for _ in range(6):
        grid.submit(len(names))
        for name in names:
            for attempt in list(grid.running(name)):
                grid.end(attempt, wall_s=10.0, cpu_s=10.0)
    for worker in grid.scheduler.state.workers.values():
        worker.health = 0.0


@pytest.mark.parametrize("policy", POLICIES)
def test_failed_task_returns_to_its_worker_if_all_others_have_voted(policy: str) -> None:
    grid = Grid(policy=policy, max_attempts=5, lease_s=1e6)
    grid.workers("a", "b")
    make_known(grid, "a", "b")
    job = grid.submit(1, 9.0, quorum=2)
    grid.end(grid.running("a")[0], Outcome.FAILED, **printed(""))
    for name in ("b", "a"):
        if grid.running(name):
            grid.end(grid.running(name)[0], **printed("x"))
    assert grid.job(job).state is JobState.SUCCEEDED or grid.running("a"), "only a may still vote"


@pytest.mark.parametrize("policy", POLICIES)
def test_job_is_starved_when_its_last_possible_voter_leaves(policy: str) -> None:
    grid = Grid(policy=policy, max_attempts=9, lease_s=10, stall_after_s=60)
    grid.workers("a", "b", "c")
    grid.join("d", facts(1, labels=["d"]))
    grid.submit(2, 100.0, requires={"labels": ["d"]})  # keeps d busy
    job = grid.submit(1, 9.0, quorum=2, max_attempts=9)
    for _ in range(3):
        for name in ("a", "b", "c"):
            for attempt in [attempt for attempt in grid.running(name) if attempt.job == job]:
                grid.end(attempt, **printed(name))
    assert grid.job(job).starved_since is None, "d could vote"
    grid.leave("d")
    assert grid.job(job).starved_since is not None


@pytest.mark.parametrize("printing", [("wrong", "right", "right"), ("right", "wrong", "right")])
def test_outvoted_result_lowers_health_before_or_after_the_quorum(printing: tuple[str, ...]) -> None:
    grid = Grid(policy="first-come", max_attempts=5, lease_s=1e6)
    grid.workers("a", "b", "c")
    job, said = grid.submit(1, 9.0, quorum=2), list(printing)
    voted = {}
    while said:
        name = next(name for name in grid.agents if grid.running(name))
        voted[name] = said[0]
        grid.end(grid.running(name)[0], **printed(said.pop(0)))
    assert grid.job(job).state is JobState.SUCCEEDED
    health = {name: grid.scheduler.state.workers[name].health for name in voted}
    assert health == {name: -0.5 if word == "wrong" else 0.5 for name, word in voted.items()}


def test_fair_gives_a_worker_other_work_after_a_failure() -> None:
    grid = Grid(policy="fair", max_attempts=5, lease_s=1e6)
    grid.workers("a", "b")
    make_known(grid, "a", "b")
    for _ in range(4):
        grid.submit(20)
    grid.end(grid.running("a")[0], Outcome.FAILED, **printed(""))
    assert grid.running("a")


@pytest.mark.parametrize("policy", ["round-robin", *POLICIES])
def test_worker_gets_other_work_while_its_failed_task_runs_elsewhere(policy: str) -> None:
    """A replica of the task would be refused, so its job's turn passes to the next job."""
    grid = Grid(policy=policy, max_attempts=5, lease_s=1e6)
    grid.workers("a", "b", slots=2)
    failed = grid.submit(1, 9.0)
    unwell, well = ("a", "b") if grid.running("a") else ("b", "a")
    grid.scheduler.state.workers[unwell].health = -1.0
    grid.end(grid.running(unwell)[0], Outcome.FAILED, **printed(""))
    assert [attempt.job for attempt in grid.running(well)] == [failed]
    other = grid.submit(9, 9.0)
    assert [attempt.job for attempt in grid.running(unwell)] == [other, other]


@pytest.mark.parametrize("prefetch_s", [0.0, 3600.0])
def test_forecast_does_not_count_prefetched_tasks_as_running(prefetch_s: float) -> None:
    grid = Grid(policy="turnaround", prefetch_s=prefetch_s)
    grid.workers("a")
    for _ in range(5):
        grid.submit(1, 10.0, max_replicas=1)
        grid.now += 10.0
        grid.end(grid.running("a")[0], wall_s=10.0, cpu_s=10.0)
    job = grid.submit(20, 200.0, max_replicas=1)
    for _ in range(10):
        grid.now += 10.0
        grid.end(grid.running("a")[0], wall_s=10.0, cpu_s=10.0)
    found = outlook(grid.scheduler.state)[job]
    assert isinstance(found, Forecast)
    assert 50.0 < found.p50_s < 200.0, "ten tasks of ten seconds each are left"
