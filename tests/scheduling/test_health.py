"""What health, queues and quorums do to one another: nobody who could work stands idle, nobody waits for ever."""

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
    """The jobs' program has succeeded on each of them."""
    for _ in range(6):
        grid.submit(len(names))
        for name in names:
            for attempt in list(grid.running(name)):
                grid.end(attempt, wall_s=10.0, cpu_s=10.0)
    for worker in grid.scheduler.state.workers.values():
        worker.health = 0.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_that_failed_here_comes_back_where_all_others_have_voted(policy: str) -> None:
    grid = Grid(policy=policy, max_attempts=5, lease_s=1e6)
    grid.workers("a", "b")
    make_known(grid, "a", "b")
    job = grid.submit(1, 9.0, quorum=2)
    grid.end(grid.running("a")[0], Outcome.FAILED, **printed(""))
    for name in ("b", "a"):
        if grid.running(name):
            grid.end(grid.running(name)[0], **printed("x"))
    assert grid.job(job).state is JobState.SUCCEEDED or grid.running("a"), "a is the only one who may vote still"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_is_starved_when_the_last_who_could_vote_has_gone(policy: str) -> None:
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
def test_a_vote_that_is_outvoted_costs_health_whenever_it_came(printing: tuple[str, ...]) -> None:
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


def test_fair_gives_a_worker_other_work_than_what_failed_on_it() -> None:
    grid = Grid(policy="fair", max_attempts=5, lease_s=1e6)
    grid.workers("a", "b")
    make_known(grid, "a", "b")
    for _ in range(4):
        grid.submit(20)
    grid.end(grid.running("a")[0], Outcome.FAILED, **printed(""))
    assert grid.running("a")


@pytest.mark.parametrize("policy", ["round-robin", *POLICIES])
def test_a_worker_has_other_work_while_what_failed_on_it_runs_elsewhere(policy: str) -> None:
    """A replica of that would be refused: the turn of its job goes on to the next one."""
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
def test_what_waits_ahead_is_not_taken_for_running(prefetch_s: float) -> None:
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
    assert 50.0 < found.p50_s < 200.0, "ten tasks of ten seconds are left"
