"""Requests of users and operators: replies and effects."""

from __future__ import annotations

import pytest

from loopline_master.core.events import (
    JobCancelled,
    JobPaused,
    JobResumed,
    JobSubmitted,
    WorkerDrained,
    WorkerJoined,
    WorkerUndrained,
)
from loopline_master.core.kernel.effects import Declined, Done, Submitted
from loopline_shared.model import AttemptId, JobState, Outcome, TaskId
from loopline_shared.spec import JobSpec, TaskSpec
from tests.scheduling.driver import START, Grid, facts, result, spec

WINDOWS = {"os": "windows"}


# --- submit ----------------------------------------------------------------------------------------------------


def test_jobs_are_numbered_and_take_the_masters_defaults() -> None:
    grid = Grid(max_attempts=7, max_replicas=4)
    assert [grid.submit(), grid.submit(5, 10.0, max_attempts=1, max_replicas="unlimited")] == [1, 2]
    plain, own = grid.job(1), grid.job(2)
    assert (plain.task_count, plain.size, plain.max_attempts, plain.max_replicas) == (1, None, 7, 4)
    assert (own.task_count, own.size, own.max_attempts, own.max_replicas) == (5, 10.0, 1, None)
    assert plain.arrival < own.arrival
    assert (plain.owner, plain.submitted_at, plain.state) == ("user", grid.now, "queued")


def test_job_may_limit_replicas_that_the_master_leaves_unlimited() -> None:
    grid = Grid(max_replicas=None)
    grid.submit()
    grid.submit(max_replicas=1)
    assert (grid.job(1).max_replicas, grid.job(2).max_replicas) == (None, 1)


def test_size_of_a_job_may_be_the_sum_of_its_tasks() -> None:
    grid = Grid()
    grid.submit_spec(JobSpec(command=["x"], tasks=[TaskSpec(size=1.0), TaskSpec(size=2.5)]))
    grid.submit_spec(JobSpec(command=["x"], tasks=[TaskSpec(size=1.0), TaskSpec()]))
    assert (grid.job(1).size, grid.job(2).size) == (3.5, None)


def test_refused_submission_names_the_limit_and_the_next_step() -> None:
    grid = Grid(max_jobs=1, max_tasks=3)
    too_many = grid.declined(JobSubmitted("user", spec(4)))
    assert (too_many.status, too_many.code) == (422, "too_many_tasks")
    assert "4 tasks" in too_many.message
    assert "max_tasks" in too_many.hint
    grid.submit(3)
    full = grid.declined(JobSubmitted("user", spec()))
    assert (full.status, full.code, bool(full.hint)) == (503, "queue_full", True)
    grid.step(JobCancelled(1))
    assert grid.submit() == 2, "a declined job does not use up a number"


def test_ended_job_counts_until_its_last_attempt_has_ended() -> None:
    grid = Grid(max_jobs=1)
    grid.join("a")
    grid.submit()
    grid.step(JobCancelled(1))
    assert grid.declined(JobSubmitted("user", spec())).code == "queue_full"
    grid.report("a")
    assert grid.submit() == 2


@pytest.mark.parametrize(
    "needs", [WINDOWS, {"labels": ["fast", "gpu"]}, {"memory_bytes": 9 * 10**9}, {"slots": 3}], ids=str
)
def test_job_that_no_worker_can_run_is_accepted_with_a_warning(needs: dict[str, object]) -> None:
    grid = Grid()
    grid.join("a", facts(2, labels=["fast"]))
    reply = grid.ask(JobSubmitted("user", spec(requires=needs)))
    assert isinstance(reply, Submitted)
    assert len(reply.warnings) == 1
    grid.join("b", facts(4, os="windows", memory_bytes=10**10, labels=["gpu", "fast"]))
    grid.leave("b")
    reply = grid.ask(JobSubmitted("user", spec(requires=needs)))
    assert isinstance(reply, Submitted)
    assert reply.warnings == (), "an absent worker still counts"


def test_several_requests_in_one_step_are_answered_in_order() -> None:
    grid = Grid(max_jobs=2)
    replies = grid.step(
        JobSubmitted("a", spec()), JobPaused(9), JobSubmitted("b", spec()), JobSubmitted("c", spec()), JobCancelled(1)
    ).replies
    assert [type(reply) for reply in replies] == [Submitted, Declined, Submitted, Declined, Done]
    assert (grid.job(2).owner, len(grid.store.jobs)) == ("b", 2)


# --- pause, stall and their exemptions -------------------------------------------------------------------------


def exemptions(grid: Grid) -> list[tuple[int, str, float, float | None]]:
    """All exemptions: job, reason, and start and end in seconds since START."""
    times = grid.store.exemptions.values()
    return [(e.job, e.reason, e.since - START, e.until and e.until - START) for e in times]


def test_paused_job_starts_no_task_but_keeps_running_attempts() -> None:
    grid = Grid()
    job = grid.submit(3)
    grid.workers("a")
    grid.step(JobPaused(job))
    attempt = grid.running("a")[0]
    effects = grid.report("a")
    assert (effects.assigns["a"].cancel, grid.running("a")) == ((), [attempt])
    grid.end(attempt)
    assert grid.running("a") == []
    grid.join("b")
    assert grid.running("b") == [], "no replica either"
    grid.step(JobResumed(job))
    assert grid.running("a")


def test_pause_is_recorded_as_an_exemption() -> None:
    grid = Grid()
    first = grid.submit(1, 1.0, max_replicas=1)
    later = grid.submit(1, 1.0, max_replicas=1)
    smaller = grid.submit(1, 0.5, max_replicas=1)
    grid.step(JobPaused(first))
    grid.workers("a", "b")
    assert grid.attempts_of(TaskId(later, 1))
    assert grid.attempts_of(TaskId(smaller, 1))
    assert exemptions(grid) == [(first, "paused", 0.0, None)], "one row, however many pass it"
    grid.step(JobResumed(first))
    for attempt in [*grid.running("a"), *grid.running("b")]:
        grid.end(attempt)
    assert (grid.job(later).state, grid.job(first).state) == ("succeeded", "running")
    assert grid.store.passings == []


def test_stalled_job_holds_later_arrivals_again_once_it_can_run() -> None:
    grid = Grid(stall_after_s=60.0)
    first = grid.submit(1, 1.0, requires=WINDOWS, max_replicas=1)
    later = grid.submit(1, 1.0, max_replicas=1)
    grid.join("a")
    assert grid.scheduler.wake_at == START + 30.0, "the lease of a"
    for _ in range(5):
        grid.now += 10
        grid.report("a")
    assert grid.scheduler.wake_at == START + 60.0
    grid.wait(9.0)
    assert (grid.job(first).stalled, grid.running("a")) == (False, [])
    grid.wait(1.0)
    assert (grid.job(first).stalled, grid.job(first).starved_since) == (True, START)
    assert grid.running("a") == [AttemptId(later, 1, 1)]
    assert exemptions(grid) == [(first, "stalled", 60.0, None)]
    after = grid.submit(1, 1.0, max_replicas=1)
    grid.end(AttemptId(later, 1, 1))
    assert grid.running("a") == [AttemptId(after, 1, 1)]
    grid.join("w", facts(os="windows"))
    assert (grid.job(first).stalled, grid.job(first).starved_since) == (False, None)
    last = grid.submit(1, 1.0)
    grid.end(AttemptId(after, 1, 1))
    assert (grid.running("a"), grid.running("w")) == ([], [AttemptId(first, 1, 1)])
    grid.end(AttemptId(first, 1, 1))
    assert grid.attempts_of(TaskId(last, 1))
    assert exemptions(grid) == [(first, "stalled", 60.0, grid.now - START)]


def test_stall_ends_only_for_a_worker_that_can_run_the_job() -> None:
    grid = Grid(stall_after_s=60.0)
    job = grid.submit(1, requires=WINDOWS)
    grid.wait(60.0)
    grid.join("a")
    assert grid.job(job).stalled
    grid.join("w", facts(os="windows"), reports=False)
    assert not grid.job(job).stalled


def test_running_job_does_not_stall_while_its_last_worker_drains() -> None:
    """Its running attempts will complete, so no job may pass it."""
    grid = Grid(stall_after_s=60.0)
    grid.join("w", facts(os="windows"))
    grid.join("a")
    first = grid.submit(1, 1.0, requires=WINDOWS)
    later = grid.submit(1, 1.0)
    grid.step(WorkerDrained("w"))
    for _ in range(4):
        grid.wait(20.0)
        grid.report("w")
        grid.report("a")
    assert (grid.job(first).running, grid.job(first).stalled, grid.running("a")) == (1, False, [])
    grid.end(AttemptId(first, 1, 1))
    assert grid.running("a") == [AttemptId(later, 1, 1)]
    assert exemptions(grid) == []


def test_job_that_can_run_again_in_time_does_not_stall() -> None:
    grid = Grid(stall_after_s=60.0)
    job = grid.submit(1, requires=WINDOWS)
    grid.now += 50
    grid.join("w", facts(os="windows"))
    grid.leave("w")
    grid.wait(50.0)
    assert not grid.job(job).stalled
    grid.wait(10.0)
    assert grid.job(job).stalled


@pytest.mark.parametrize("verb", [JobPaused, JobResumed, JobCancelled])
def test_ended_and_unknown_jobs_cannot_be_changed(verb: type[JobPaused | JobResumed | JobCancelled]) -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit()
    grid.step(JobCancelled(job))
    for which in (job, 99):
        declined = grid.declined(verb(which))
        assert (declined.status, declined.code) == (409, "job_is_over")


# --- cancel ----------------------------------------------------------------------------------------------------


def test_cancelled_job_leaves_the_grid_at_once() -> None:
    grid = Grid()
    first = grid.submit(3, 1.0, max_replicas=1)
    later = grid.submit(1, 1.0)
    grid.workers("a", "b")
    assert not grid.attempts_of(TaskId(later, 1))
    effects = grid.step(JobCancelled(first))
    assert effects.completed == []
    assert (grid.job(first).state, grid.job(first).departure) == ("cancelled", grid.store.grid.sequence)
    assert [grid.task(first, n).state for n in (1, 2)] == ["cancelled", "cancelled"]
    assert TaskId(first, 3) not in grid.store.tasks, "it was never started"
    grid.report("a")
    assert grid.attempt(first, 1, 1).state == "cancelled"
    assert grid.attempts_of(TaskId(later, 1)), "no job holds it any more"


def test_cancelled_job_is_no_longer_paused_or_stalled() -> None:
    grid = Grid(stall_after_s=60.0)
    job = grid.submit(1, requires=WINDOWS)
    grid.step(JobPaused(job))
    grid.wait(60.0)
    assert (grid.job(job).paused, grid.job(job).stalled) == (True, True)
    grid.step(JobCancelled(job))
    assert (grid.job(job).paused, grid.job(job).stalled, grid.job(job).starved_since) == (False, False, None)
    assert grid.scheduler.wake_at is None


# --- retry -----------------------------------------------------------------------------------------------------


def failed(grid: Grid) -> int:
    """A job of three tasks: 1 succeeded, 2 and 3 failed."""
    job = grid.submit(3, 1.0, max_attempts=1, max_replicas=1)
    for number in (1, 2, 3):
        outcome = Outcome.SUCCEEDED if number == 1 else Outcome.FAILED
        grid.end(AttemptId(job, number, 1), outcome)
    assert grid.job(job).state == "failed"
    return job


def test_retried_job_runs_its_unsuccessful_tasks_again() -> None:
    grid = Grid()
    grid.join("a")
    job = failed(grid)
    before = grid.task(job, 1)
    assert grid.ask(grid.retry_event(job)) == Done()
    assert grid.job(job).state == "running"
    assert (grid.job(job).failed, grid.job(job).succeeded) == (0, 1)
    assert grid.running("a") == [AttemptId(job, 2, 2)], "attempt numbers continue"
    grid.end(AttemptId(job, 2, 2))
    grid.end(AttemptId(job, 3, 2), Outcome.FAILED)
    assert (grid.job(job).state, grid.task(job, 3).failures) == ("failed", 1), "a retry resets the failures"
    grid.step(grid.retry_event(job))
    grid.end(AttemptId(job, 3, 3))
    assert (grid.job(job).state, grid.task(job, 1)) == ("succeeded", before)


def test_retried_job_arrives_last() -> None:
    grid = Grid()
    grid.join("a")
    job = failed(grid)
    other = grid.submit(2, 1.0, max_replicas=1)
    grid.step(grid.retry_event(job))
    assert grid.job(job).arrival > grid.job(other).arrival
    assert (grid.job(job).departure, grid.job(job).finished_at, grid.job(job).held_at) == (None, None, None)
    grid.end(AttemptId(other, 1, 1))
    assert grid.running("a") == [AttemptId(job, 2, 2)], "jobs take turns"
    grid.end(AttemptId(job, 2, 2))
    grid.end(AttemptId(other, 2, 1))
    assert grid.running("a") == [AttemptId(job, 3, 2)], "its last task had to wait for the other job"
    assert grid.job(job).held_at is not None


def test_retry_waits_until_the_job_has_no_live_attempts() -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(2)
    grid.step(JobCancelled(job))
    declined = grid.declined(grid.retry_event(job))
    assert (declined.status, declined.code) == (409, "not_over")
    assert "still being stopped" in declined.message
    grid.report("a")
    assert grid.ask(grid.retry_event(job)) == Done()
    assert grid.running("a") == [AttemptId(job, 1, 2)]


def test_live_job_cannot_be_retried() -> None:
    grid = Grid(max_jobs=1)
    job = grid.submit()
    grid.step(JobCancelled(job))
    event = grid.retry_event(job)
    assert [type(reply) for reply in grid.step(event, event).replies] == [Done, Declined]
    grid.step(JobCancelled(job))
    grid.submit()
    assert grid.declined(grid.retry_event(job)).code == "queue_full"


def test_retry_does_not_change_its_logged_event() -> None:
    grid = Grid()
    grid.join("a")
    job = failed(grid)
    event = grid.retry_event(job)
    grid.step(event)
    assert (event.job.state, [task.state for task in event.tasks]) == ("failed", ["failed", "failed"])


def test_lost_attempt_from_before_a_retry_counts_as_unknown() -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit()
    grid.wait(30.0)
    grid.step(JobCancelled(job))
    grid.step(grid.retry_event(job))
    grid.join("a", reports=False)
    effects = grid.report("a", result(AttemptId(job, 1, 1)))
    assert effects.late == [("a", result(AttemptId(job, 1, 1)))]
    assert (grid.task(job).winner, grid.running("a")) == (None, [AttemptId(job, 1, 2)])


# --- drain -----------------------------------------------------------------------------------------------------


def test_draining_worker_finishes_its_attempts_and_gets_no_more() -> None:
    grid = Grid()
    job = grid.submit(3, max_replicas=1)
    grid.join("a", facts(1))
    assert grid.ask(WorkerDrained("a")) == Done()
    grid.end(AttemptId(job, 1, 1))
    grid.join("a")
    assert (grid.running("a"), grid.store.workers["a"].draining) == ([], True), "even after it reconnected"
    assert grid.task(job, 1).state == "succeeded"
    assert grid.ask(WorkerUndrained("a")) == Done()
    assert grid.running("a") == [AttemptId(job, 2, 1)]


def test_worker_drained_at_once_gives_its_tasks_back_gently() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a", slots=2)
    job = grid.submit(2, 9.0, max_attempts=1)
    assert grid.ask(WorkerDrained("a", now=True)) == Done()
    assigned = grid.last.assigns["a"]
    assert (len(assigned.cancel), assigned.gently) == (2, assigned.cancel)
    grid.workers("b", slots=2)
    assert not grid.running("b"), "with one attempt allowed, a task waits until the other is gone"
    grid.report("a")
    assert len(grid.running("b")) == 2
    for attempt in grid.running("b"):
        grid.end(attempt)
    assert (grid.job(job).state, grid.task(job).failures) == (JobState.SUCCEEDED, 0)


def test_gang_continues_when_a_worker_is_drained_at_once() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a", "b", gangs=True)
    grid.submit(1, 9.0, nodes=2)
    grid.report("a")
    grid.report("b")
    running = grid.running("a")
    grid.ask(WorkerDrained("a", now=True))
    assert running == grid.running("a") != []


def test_latest_reason_of_a_drain_is_kept_until_it_ends() -> None:
    grid = Grid()
    grid.join("a")
    reasons = []
    for event in (WorkerDrained("a", "new disk"), WorkerDrained("a", "new memory"), WorkerUndrained("a")):
        grid.ask(event)
        reasons.append(grid.store.workers["a"].drain_reason)
    assert reasons == ["new disk", "new memory", ""]


def test_drain_of_an_unknown_worker_is_declined() -> None:
    assert Grid().declined(WorkerDrained("nobody")).status == 404


def test_number_of_known_workers_is_limited() -> None:
    grid = Grid(max_workers=1)
    grid.join("a")
    declined = grid.declined(WorkerJoined("b", 2, "boot", facts()))
    assert (declined.status, declined.code) == (503, "too_many_workers")
    grid.join("a")
    assert list(grid.store.workers) == ["a"], "a known worker may reconnect"


# --- failures and attempts -------------------------------------------------------------------------------------


def test_failures_of_a_task_use_up_max_attempts() -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(1, max_attempts=2)
    effects = grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    assert (grid.task(job).failures, grid.task(job).state) == (1, "running")
    assert grid.running("a") == [AttemptId(job, 1, 2)]
    assert effects.completed == []
    effects = grid.end(AttemptId(job, 1, 2), Outcome.FAILED)
    assert (grid.task(job).state, grid.job(job).state) == ("failed", "failed")
    assert effects.completed == [job]


@pytest.mark.parametrize("outcome", [Outcome.GIVEN_BACK, Outcome.CANCELLED])
def test_preemption_does_not_use_up_an_attempt(outcome: Outcome) -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(1, max_attempts=1)
    for number in range(1, 6):
        grid.end(AttemptId(job, 1, number), outcome)
        assert grid.attempt(job, 1, number).state == "cancelled"
    assert (grid.task(job).failures, grid.task(job).attempts, grid.job(job).state) == (0, 6, "running")


def test_loss_of_a_worker_does_not_use_up_an_attempt() -> None:
    grid = Grid()
    job = grid.submit(1, max_attempts=1)
    for number in range(1, 4):
        grid.join("a")
        assert grid.running("a") == [AttemptId(job, 1, number)]
        grid.wait(30.0)
        grid.reboot("a")
    assert (grid.task(job).failures, grid.job(job).state) == (0, "running")


def test_failed_task_waits_for_its_live_replica() -> None:
    grid = Grid()
    job = grid.submit(1, max_attempts=2, max_replicas=2)
    grid.workers("a", "b")
    grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    assert grid.task(job).state == "running"
    grid.end(AttemptId(job, 1, 2))
    assert (grid.task(job).state, grid.job(job).state) == ("succeeded", "succeeded")


def test_job_with_a_failed_task_fails_when_all_tasks_have_ended() -> None:
    grid = Grid(policy="first-come")
    grid.join("a")
    job = grid.submit(2, max_attempts=1)
    effects = grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    assert (grid.job(job).state, effects.completed) == ("running", [])
    effects = grid.end(AttemptId(job, 2, 1))
    assert (grid.job(job).state, effects.completed) == ("failed", [job])
    assert (grid.job(job).succeeded, grid.job(job).failed) == (1, 1)


def test_cancelled_tasks_get_a_grace_period_and_losing_replicas_none() -> None:
    grid = Grid(policy="wqr")
    grid.workers("a", "b")
    first = grid.submit(1, 100.0, max_replicas=2)
    effects = grid.end(grid.running("a")[0])
    assert effects.assigns["b"].cancel == (AttemptId(first, 1, 2),)
    assert effects.assigns["b"].gently == ()
    grid.report("b")
    job = grid.submit(1, 100.0, max_replicas=1)
    (attempt,) = grid.attempts_of(TaskId(job, 1))
    effects = grid.step(JobCancelled(job))
    (assign,) = effects.assigns.values()
    assert (assign.cancel, assign.gently) == ((attempt,), (attempt,))
