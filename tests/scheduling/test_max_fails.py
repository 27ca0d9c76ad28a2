"""``max_fails``: a job with too many failed tasks is stopped, and no job passes another by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline_master.core.events import JobRetried
from loopline_master.core.kernel.entities import most_failed
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_shared.model import AttemptId, AttemptState, JobState, Outcome, TaskState
from loopline_shared.spec import JobSpec
from tests.scheduling.driver import Grid, facts


def fail_all(grid: Grid, name: str) -> None:
    for attempt in grid.running(name):
        if attempt in grid.running(name):  # not stopped by an earlier failure
            grid.end(attempt, Outcome.FAILED)


def test_job_is_stopped_when_max_fails_tasks_have_failed() -> None:
    grid = Grid(max_attempts=1)
    grid.join("a", facts(2))
    job = grid.submit(10, max_fails=3)
    fail_all(grid, "a")
    assert (grid.job(job).state, grid.job(job).failed) == (JobState.RUNNING, 2)
    first, second = grid.running("a")
    grid.end(first, Outcome.FAILED)
    assert (grid.job(job).state, grid.job(job).failed) == (JobState.CANCELLED, 3)
    assert grid.task(job, second.task).state is TaskState.CANCELLED
    assert "too many of its tasks failed" in grid.attempt(job, second.task).reason
    assert grid.running("a") == [], "running attempts are stopped"


def test_retried_failure_does_not_count_towards_max_fails() -> None:
    grid = Grid(max_attempts=2)
    grid.join("a", facts(1))
    job, ended = grid.submit(2, max_fails=1), 0
    while grid.job(job).state is JobState.RUNNING:
        grid.end(grid.running("a")[0], Outcome.FAILED)
        ended += 1
    assert ended in (2, 3), "each of the two tasks may have failed once before the first failed for good"
    assert (grid.job(job).state, grid.job(job).failed) == (JobState.CANCELLED, 1)


def test_final_failure_ends_the_task_and_its_replicas() -> None:
    grid = Grid(policy="wqr", max_attempts=5)
    grid.workers("a", "b")
    job = grid.submit(1, 100.0, max_replicas=2)
    assert (len(grid.running("a")), len(grid.running("b"))) == (1, 1)
    grid.end(grid.running("b")[0], Outcome.FAILED, is_final=True)
    assert (grid.job(job).state, grid.task(job).failures) == (JobState.FAILED, 1)
    assert grid.running("a") == []


def test_final_failure_is_one_vote_of_a_quorum() -> None:
    grid = Grid(max_attempts=2)
    grid.workers("a", "b")
    job = grid.submit(1, 100.0, quorum=2)
    grid.end(grid.running("a")[0], Outcome.FAILED, is_final=True)
    assert grid.job(job).state is JobState.RUNNING, "no single worker can fail it"


def test_job_fails_if_all_its_tasks_ended_at_the_limit() -> None:
    grid = Grid(max_attempts=1)
    grid.join("a", facts(1))
    job = grid.submit(1, max_fails=1)
    fail_all(grid, "a")
    assert grid.job(job).state is JobState.FAILED


def test_gangs_end_when_their_job_is_stopped() -> None:
    grid = Grid(max_attempts=1)
    grid.workers(*"abcd", gangs=True)
    job = grid.submit(2, nodes=2, max_fails=1)
    for _ in range(3):
        for name in "abcd":
            grid.report(name)
    first, finished, other = AttemptId(job, 1, 1), AttemptId(job, 2, 1), AttemptId(job, 2, 2)
    lost = next(name for name in "abcd" if other in grid.running(name))
    grid.end(finished)
    grid.end(first, Outcome.FAILED)
    assert grid.job(job).state is JobState.CANCELLED
    grid.reboot(lost)
    grid.join(lost)
    for name in "abcd":
        grid.report(name)
    state = grid.scheduler.state
    assert (state.jobs, state.attempts, state.own(GangMemory).gangs) == ({}, {}, {})
    assert grid.attempt(job, 2, 1).state is AttemptState.CANCELLED, "a single member has produced no result"
    assert not Scheduler(grid.store.snapshot()).state.own(GangMemory).gangs


def test_held_job_that_is_stopped_passes_no_other() -> None:
    grid = Grid(max_attempts=1)
    grid.join("a", facts(3))
    earlier = grid.submit(1, 10.0)
    later = grid.submit(3, 10.0, max_fails=2)
    for attempt in [attempt for attempt in grid.running("a") if attempt.job == later]:
        grid.end(attempt, Outcome.FAILED)
    assert grid.job(later).state is JobState.CANCELLED, "it is cancelled, not completed"
    assert grid.job(earlier).state is JobState.RUNNING


def test_failures_before_a_restart_count_towards_max_fails() -> None:
    grid = Grid(max_attempts=1)
    grid.join("a", facts(1))
    job = grid.submit(5, max_fails="40%")
    fail_all(grid, "a")
    grid.restart()
    grid.join("a")
    fail_all(grid, "a")
    assert grid.job(job).state is JobState.CANCELLED
    grid.report("a")
    reply = grid.retry_event(job)
    assert isinstance(reply, JobRetried)
    grid.step(reply)
    assert (grid.job(job).state, grid.job(job).failed) == (JobState.RUNNING, 0), "a retry resets the count"


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_percentage_is_rounded_up_to_at_least_one_task(count: int, basis_points: int) -> None:
    limit = most_failed(f"{basis_points / 100:.2f}%", count)
    assert limit is not None
    assert 1 <= limit <= count
    assert (limit - 1) * 10_000 < basis_points * count <= max(limit, 1) * 10_000 or limit == 1


@pytest.mark.parametrize("wrong", [0, -1, "0%", "101%", "5", "x%", 1.5, True])
def test_invalid_max_fails_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"command": ["true"], "max_fails": wrong})
