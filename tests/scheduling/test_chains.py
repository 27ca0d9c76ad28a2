"""A job with dependencies enters the grid only when they have succeeded."""

from __future__ import annotations

import pytest

from loopline_master.core.events import JobCancelled, JobPaused, JobResumed, JobSubmitted
from loopline_master.core.explain.explain_chain import ends_of_chains, never_starts
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.kernel.effects import Declined
from loopline_master.core.kernel.entities import UNRELEASED
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import JobState, Order, Outcome, TaskId
from tests.scheduling.driver import Grid, spec


def finish(grid: Grid, job: int, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """End all running attempts of the job."""
    for agent in list(grid.agents.values()):
        for attempt in list(agent.running):
            if attempt.job == job and attempt in agent.running:
                grid.end(attempt, outcome)


def test_job_enters_the_grid_when_its_last_dependency_succeeds() -> None:
    grid = Grid()
    grid.workers("a", "b", "c")
    first, second = grid.submit(1, 5.0, max_replicas=1), grid.submit(1, 9.0, max_replicas=1)
    after = grid.submit(2, 1.0, after=[first, second, first])
    job = grid.job(after)
    assert (job.state, job.arrival, job.waiting_for) == (JobState.WAITING, UNRELEASED, (first, second))
    finish(grid, first)
    assert (grid.job(after).state, grid.job(after).waiting_for) == (JobState.WAITING, (second,))
    grid.now += 7.0
    finish(grid, second)
    job = grid.job(after)
    assert job.state is JobState.RUNNING
    assert (job.entered_at, job.submitted_at, job.waiting_for) == (grid.now, grid.now - 7.0, ())
    assert job.arrival > (grid.job(second).departure or 0)


@pytest.mark.parametrize("order", [Order.HOLD, Order.DELIVER])
def test_job_waiting_for_dependencies_holds_no_later_job(order: Order) -> None:
    """Its arrival counts from its release, not from its submission."""
    grid = Grid(order=order, policy="first-come")
    grid.workers("a")
    first = grid.submit(1, 50.0, max_replicas=1)
    waiting = grid.submit(1, 1.0, after=[first])
    later = grid.submit(1, 2.0)
    grid.join("b")
    finish(grid, later)
    assert grid.job(later).state is JobState.SUCCEEDED
    third = grid.submit(1, 1.0, max_replicas=1)
    finish(grid, first)
    assert grid.job(waiting).arrival > grid.job(third).arrival
    assert not grid.store.passings


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_job_keeps_waiting_while_a_failed_dependency_is_retried(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.workers("a")
    first = grid.submit(1, max_attempts=1)
    after = grid.submit(1, after=[first])
    last = grid.submit(1, after=[after])
    finish(grid, first, Outcome.FAILED)
    assert grid.job(after).state is JobState.WAITING
    explained = explain_job(grid.scheduler, after, {first: JobState.FAILED})
    assert explained is not None
    assert explained.sentence == f"can never start: job {first} has failed; retry that one, or cancel this one"
    assert [(reason.code, reason.job) for reason in explained.reasons] == [("waits_in_vain", first)]
    explained = explain_job(grid.scheduler, last, {first: JobState.FAILED})
    assert explained is not None
    why = f"job {after} waits for job {first}, which has failed"
    assert explained.sentence == f"can never start: {why}; retry job {first}, or cancel this one"
    assert [(reason.code, reason.job) for reason in explained.reasons] == [("waits_in_vain", first)]
    state = grid.scheduler.state
    assert ends_of_chains(state, [last]) == {first}
    (warning,) = never_starts(state, spec(after=[last]), {first: JobState.CANCELLED})
    assert warning.startswith(f"it can never start: job {last} waits for job {first}, which was cancelled; ")
    assert never_starts(state, spec(after=[first]), {first: JobState.SUCCEEDED}) == []
    grid.restart()
    grid.join("a")
    grid.step(grid.retry_event(first))
    for job in (first, after, last):
        finish(grid, job)
        assert grid.job(job).state is JobState.SUCCEEDED


def test_explain_names_the_dependencies_of_a_job() -> None:
    grid = Grid()
    first = grid.submit(3)
    after = grid.submit(1, after=[first])
    for explained in (explain_job(grid.scheduler, after), explain_task(grid.scheduler, TaskId(after, 1))):
        assert explained is not None
        assert explained.sentence == f"waits for job {first} to succeed (queued; all 3 tasks are left)"


def test_event_carries_the_dependencies_that_ended_before() -> None:
    grid = Grid()
    grid.workers("a")
    done, cancelled = grid.submit(), grid.submit(max_attempts=1)
    finish(grid, done)
    grid.step(JobCancelled(cancelled))
    grid.report("a")
    assert not grid.scheduler.state.jobs, "forgotten"
    assert grid.job(grid.submit(after=[done])).state is not JobState.WAITING
    assert grid.job(grid.submit(after=[done, cancelled])).waiting_for == (cancelled,)


def test_submission_is_declined_if_a_dependency_changed_since_it_was_read() -> None:
    grid = Grid()
    declined = grid.declined(JobSubmitted("user", spec(after=[7])))
    assert (declined.status, declined.code) == (409, "changed_meanwhile")
    first = grid.submit()
    after = grid.submit(after=[first])
    grid.step(JobCancelled(after))
    grid.workers("a")
    finish(grid, first)
    event = grid.retry_event(after)
    assert isinstance(grid.ask(type(event)(event.job, [], [])), Declined)
    grid.step(event)
    assert grid.job(after).state is not JobState.WAITING


def test_waiting_job_can_be_paused_resumed_and_cancelled() -> None:
    grid = Grid(max_jobs=2)
    first = grid.submit(max_replicas=1)
    after = grid.submit(after=[first])
    assert grid.declined(JobSubmitted("user", spec())).code == "queue_full"
    grid.step(JobPaused(after))
    grid.workers("a")
    finish(grid, first)
    assert (grid.job(after).state, grid.job(after).paused) == (JobState.QUEUED, True)
    grid.step(JobResumed(after))
    assert grid.job(after).state is JobState.RUNNING
    last = grid.submit(after=[after])
    grid.step(JobCancelled(last))
    job = grid.job(last)
    assert (job.state, job.waiting_for) == (JobState.CANCELLED, ())
    assert last not in grid.scheduler.state.jobs


def test_cancelled_job_waits_for_its_dependencies_again_when_retried() -> None:
    grid = Grid()
    first = grid.submit()
    after = grid.submit(after=[first])
    grid.step(JobCancelled(after))
    grid.step(grid.retry_event(after))
    assert (grid.job(after).state, grid.job(after).waiting_for) == (JobState.WAITING, (first,))


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_job_after_any_end_starts_however_the_first_one_ends(outcome: Outcome) -> None:
    grid = Grid(max_attempts=1)
    grid.workers("a")
    first = grid.submit()
    report = grid.submit(after=[first], after_state="ended")
    assert grid.job(report).state is JobState.WAITING
    explained = explain_job(grid.scheduler, report)
    assert explained is not None
    assert f"waits for job {first} to end" in explained.sentence
    finish(grid, first, outcome)
    assert grid.job(report).state is JobState.RUNNING


def test_job_after_any_end_starts_when_the_first_one_is_cancelled() -> None:
    grid = Grid()
    grid.workers("a")
    first = grid.submit()
    report = grid.submit(after=[first], after_state="ended")
    last = grid.submit(after=[report])
    grid.ask(JobCancelled(first))
    grid.report("a")
    assert grid.job(report).state is JobState.RUNNING
    finish(grid, report)
    assert grid.job(last).state is JobState.RUNNING
    grid.restart()
    assert grid.job(last).state is JobState.RUNNING


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_clean_up_job_starts_after_a_failure(is_cancelled: bool) -> None:
    grid = Grid(max_attempts=1)
    grid.workers("a")
    first = grid.submit()
    clean_up = grid.submit(after=[first], after_state="failed")
    if is_cancelled:
        grid.ask(JobCancelled(first))
        grid.report("a")
    else:
        finish(grid, first, Outcome.FAILED)
    assert grid.job(clean_up).state is JobState.RUNNING


def test_clean_up_job_is_cancelled_when_nothing_has_failed() -> None:
    grid = Grid()
    grid.workers("a")
    first = grid.submit()
    clean_up = grid.submit(after=[first], after_state="failed")
    behind = grid.submit(after=[clean_up], after_state="ended")
    finish(grid, first)
    assert grid.job(clean_up).state is JobState.CANCELLED
    assert grid.job(behind).state is JobState.RUNNING, "the end of the one lets the next one start in the same step"
    declined = grid.declined(
        JobSubmitted("user", spec(after=[first], after_state="failed"), ended=grid.ended([first]))
    )
    assert declined.code == "has_succeeded"


def test_explain_names_the_failure_at_the_start_of_a_chain() -> None:
    grid = Grid(max_attempts=1)
    grid.workers("a")
    first = grid.submit()
    second = grid.submit(after=[first])
    report = grid.submit(after=[second], after_state="ended")
    finish(grid, first, Outcome.FAILED)
    explained = explain_job(grid.scheduler, report, grid.ended([first]))
    assert explained is not None
    assert f"can never start: job {second} waits for job {first}, which has failed" in explained.sentence
