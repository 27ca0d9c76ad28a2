"""A session is one open job: outside the order, with one turn, one share of virtual time, one job of its user."""

from __future__ import annotations

import pytest

from loopline_master.core.estimates import eta
from loopline_master.core.events import JobCancelled, JobPaused, JobResumed, JobSubmitted
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Declined, Submitted
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import AttemptId, JobState, Order, TaskId
from tests.scheduling.driver import Grid, spec


def busy(policy: str = "round-robin", **chosen: object) -> Grid:
    """A grid whose only slot is busy, so submitted jobs wait."""
    grid = Grid(policy=policy, max_replicas=1, **chosen)
    grid.workers("a")
    grid.submit(1, name="first")
    return grid


def served(grid: Grid, count: int) -> list[int]:
    """End the attempt on the slot ``count`` times; return the jobs that got the slot."""
    jobs = []
    for _ in range(count):
        grid.end(*grid.running("a"))
        jobs += [attempt.job for attempt in grid.running("a")]
    return jobs


def test_session_job_is_outside_the_order() -> None:
    grid = Grid(single_task_order="hold")
    grid.workers("a", "b", "c")
    call = grid.submit(1, 1.0, session="s", max_replicas=1)
    job = grid.submit(1, 5.0, max_replicas=1)
    another = grid.submit(1, 9.0, session="s")
    assert [grid.job(number).order for number in (call, job, another)] == [Order.NONE, Order.HOLD, Order.NONE]
    assert sorted(attempt.job for name in "abc" for attempt in grid.running(name)) == [call, job, another]
    grid.end(AttemptId(another, 1, 1))
    grid.end(AttemptId(job, 1, 1))
    grid.end(AttemptId(call, 1, 1))
    assert not grid.store.passings


def test_open_calls_take_one_turn_in_round_robin() -> None:
    grid = busy()
    calls = [grid.submit(1, name="call", session="s") for _ in range(4)]
    job = grid.submit(4)
    assert served(grid, 8) == [calls[0], job, calls[1], job, calls[2], job, calls[3], job]


def test_session_keeps_its_turn_while_it_has_open_calls() -> None:
    """Like a pool that is kept full: each call that ends is replaced by a new one."""
    grid = busy()
    grid.submit(1, name="call", session="s")
    job, turns = grid.submit(4), []
    for _ in range(4):
        grid.submit(1, name="call", session="s")
        turns += served(grid, 2)
    assert [turn == job for turn in turns] == [False, True] * 4
    live = grid.scheduler.state.index.sessions
    grid.restart()
    assert grid.scheduler.state.index.sessions == live


def test_turn_ends_with_the_last_open_call() -> None:
    grid = busy()
    first = grid.submit(1, session="s")
    served(grid, 2)
    assert grid.job(first).state is JobState.SUCCEEDED
    between, again = grid.submit(1), grid.submit(1, session="s")
    assert grid.job(between).turn < grid.job(again).turn == grid.job(again).arrival


def test_sessions_of_two_users_are_two() -> None:
    grid = busy(shares=False)
    for user in ("ann", "bob", "ann", "bob"):
        assert isinstance(grid.ask(JobSubmitted(user, spec(1, session="s"))), Submitted)
    turns = {job.owner: job.turn for job in grid.store.jobs.values() if job.session}
    assert turns["ann"] != turns["bob"]


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_all_calls_run_under_each_policy(policy: str) -> None:
    grid = Grid(policy=policy, prefetch_s=2.0)
    grid.workers("a", "b", slots=2)
    jobs = [grid.submit(1 + number % 3, session="st"[number % 2]) for number in range(9)]
    jobs.append(grid.submit(4, 5.0))
    grid.step(JobPaused(jobs[0]))
    grid.step(JobCancelled(jobs[1]))
    for _ in range(40):
        for name in "ab":
            for attempt in grid.running(name)[:1]:
                grid.end(attempt)
            grid.report(name)
        grid.step(JobResumed(jobs[0])) if grid.job(jobs[0]).is_live else None
    assert {grid.job(job).state for job in jobs if job != jobs[1]} == {JobState.SUCCEEDED}
    assert not grid.scheduler.state.index.sessions.at


def test_virtual_time_counts_a_session_as_one_job() -> None:
    """Its calls are tagged one behind the other, as packets of a flow in weighted fair queueing."""
    grid = Grid(policy="fair")
    job = grid.submit(10, 40.0)
    calls = [grid.submit(1, 10.0, session="s") for _ in range(4)]
    assert [grid.job(call).tag for call in calls] == [10.0, 20.0, 30.0, 40.0]
    clock = grid.scheduler.state.index.virtual_time
    assert clock.after(0.0, 2.0) == 1.0, "two share the work, though five jobs are open"
    grid.step(JobCancelled(calls[3]))
    assert grid.scheduler.state.index.virtual_time.after(30.0, 4.0) == 34.0, "its last tag is reached at 30"
    grid.step(JobCancelled(job))
    assert grid.scheduler.state.index.virtual_time.after(0.0, 2.0) == 2.0


def test_session_is_new_to_fair_with_its_first_call_only() -> None:
    """Otherwise each call would be served at once, like a job that has never run."""
    grid = Grid(policy="fair", max_replicas=1)
    grid.workers("a", "b")
    grid.submit(1, 1.0, session="s")
    job = grid.submit(3, 3.0)
    grid.submit(1, 100.0, session="s")
    grid.end(AttemptId(job, 1, 1))
    assert grid.attempts_of(TaskId(job, 2)), "the call of 100 s has a late tag"


def test_session_counts_as_one_job_of_its_user() -> None:
    grid = busy(user_jobs=3, user_tasks=6)
    calls = [grid.submit(1, session="s") for _ in range(4)]
    grid.submit(1, session="t")
    declined = grid.ask(JobSubmitted("user", spec(1)))
    assert isinstance(declined, Declined)
    assert declined.message == "user has 3 of the 3 unfinished jobs that one user may have; this would be 1 more"
    declined = grid.ask(JobSubmitted("user", spec(1, session="s")))
    assert isinstance(declined, Declined)
    assert declined.code == "user_tasks", "its tasks still count"
    for call in calls:
        grid.step(JobCancelled(call))
    assert isinstance(grid.ask(JobSubmitted("user", spec(1))), Submitted)


def test_session_counts_as_one_job_in_forecasts() -> None:
    grid = Grid()
    grid.workers("a", "b")
    grid.submit(1, 10.0)
    grid.end(*grid.running("a"), wall_s=10.0)
    job = grid.submit(4, 40.0)

    def end_s() -> float:
        found = eta.outlook(grid.scheduler.state)[job]
        assert isinstance(found, eta.Forecast)
        return found.p50_s

    alone = end_s()
    for _ in range(50):
        grid.submit(1, 10.0, session="s")
    assert alone < end_s() < 2.5 * alone, "two jobs share the slots"


def test_explain_describes_an_open_session() -> None:
    grid = busy()
    explained = explain_job(grid.scheduler, grid.submit(1, session="s"))
    assert explained is not None
    assert explained.reasons[-1].code == "session"
