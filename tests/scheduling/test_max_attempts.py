"""``max_attempts`` bounds how often a task can fail: no attempt starts that could exceed it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.events import JobCancelled
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.effects import Done
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import AttemptId, AttemptState, JobState, Outcome, Output, TaskId, TaskState
from loopline_shared.spec import JobSpec
from tests.campaign import PATIENT
from tests.scheduling.driver import Grid, facts

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_failing_task_runs_max_attempts_times(policy: str, limit: int) -> None:
    grid = Grid(policy=policy, max_replicas=None)
    grid.workers(*NAMES)
    job = grid.submit(1, 9.0, max_attempts=limit)
    for _ in range(limit):
        grid.end(grid.attempts_of(TaskId(job, 1))[0], Outcome.FAILED)
    assert grid.task(job).state is TaskState.FAILED
    assert (grid.task(job).failures, grid.task(job).attempts) == (limit, limit)


def test_task_with_one_attempt_gets_no_replica_while_frozen() -> None:
    grid = Grid(policy="round-robin")
    grid.workers("a", "b")
    job = grid.submit(1, 9.0, max_attempts=1)
    grid.report("a", frozen=True)
    grid.report("b")
    assert not grid.running("b")
    grid.end(grid.running("a")[0], Outcome.GIVEN_BACK)
    assert grid.task(job).state is TaskState.RUNNING, "a preemption does not use up an attempt"


def test_returning_attempt_is_cancelled_when_its_replacement_uses_the_limit() -> None:
    grid = Grid(policy="first-come", lease_s=30.0)
    grid.workers("a")
    job = grid.submit(1, 9.0, max_attempts=1)
    grid.wait(31.0)
    grid.join("b")
    assert grid.running("b") == [AttemptId(job, 1, 2)]
    grid.join("a")
    assert not grid.running("a")
    assert grid.attempt(job, 1, 1).state is AttemptState.CANCELLING


def test_call_with_one_attempt_gets_a_replica_while_frozen() -> None:
    grid = Grid(policy="first-come")
    for name in ("a", "b"):
        grid.join(name, replace(facts(), functions="3.11"))
    call = {"file": f"sha256:{'a' * 64}", "python": "3.11", "session": "s"}
    job = grid.submit_spec(JobSpec(function=call, requires={"python": "3.11"}, max_attempts=1))
    grid.report("a", frozen=True)
    grid.report("b")
    assert [attempt.task_id for attempt in grid.running("b")] == [TaskId(job, 1)]


@pytest.mark.parametrize("quorum", [2, 3])
def test_quorum_gets_its_votes_and_no_more_with_one_attempt(quorum: int) -> None:
    grid = Grid(policy="round-robin", max_replicas=None)
    grid.workers("a", "b", "c", "d", "e")
    job = grid.submit(1, 9.0, quorum=quorum, max_attempts=1)
    assert len(grid.attempts_of(TaskId(job, 1))) == quorum
    for attempt in grid.attempts_of(TaskId(job, 1)):
        grid.end(attempt, stdout=Output(4, data=b"same"), cpu_s=1.0, wall_s=1.0)
    assert (grid.job(job).state, grid.task(job).attempts) == (JobState.SUCCEEDED, quorum)


def test_retracted_attempt_is_awaited_when_the_task_must_not_run_twice() -> None:
    grid = Grid(policy="turnaround", prefetch_s=100.0)
    grid.workers("a")
    job = grid.submit(2, 10.0, max_attempts=1)
    assert grid.waiting("a") == [AttemptId(job, 2, 1)]
    grid.join("b")
    assert not grid.attempts_of(TaskId(job, 2)), "worker a may have started it, so its answer is awaited"
    assert not grid.running("b")
    grid.report("a")
    assert grid.running("b") == [AttemptId(job, 2, 2)]


def test_silence_of_a_worker_ends_the_wait_for_its_answer() -> None:
    grid = Grid(policy="turnaround", prefetch_s=100.0, lease_s=30.0)
    grid.workers("a")
    job = grid.submit(2, 10.0, max_attempts=1)
    grid.join("b")
    grid.now += 20.0
    grid.report("b")
    grid.wait(11.0)
    assert {attempt.task for attempt in grid.running("b")} == {1, 2}, "a loss does not use up an attempt"
    assert grid.job(job).state is JobState.RUNNING


moves = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["fail", "fail", "end", "freeze", "report", "leave", "wait"])),
    max_size=40,
)


@PATIENT
@given(
    policy=st.sampled_from(sorted(REGISTRY)),
    limit=st.integers(1, 3),
    replicas=st.sampled_from([1, 2, None]),
    quorum=st.sampled_from([None, None, 2]),
    prefetch_s=st.sampled_from([0.0, 100.0]),
    story=moves,
)
def test_attempts_alive_and_failures_stay_within_the_limit(
    policy: str,
    limit: int,
    replicas: int | None,
    quorum: int | None,
    prefetch_s: float,
    story: list[tuple[str, str]],
) -> None:
    """The driver checks each attempt as it starts; without losses, failures are bounded as well."""
    grid = Grid(policy=policy, lease_s=30.0, prefetch_s=prefetch_s, quarantine_s=0.0)
    for name, slots in zip(NAMES, (1, 2, 1), strict=True):
        grid.join(name, facts(slots))
    most = max(quorum or 1, replicas) if replicas is not None else "unlimited"
    job = grid.submit(5, 20.0, max_attempts=limit, max_replicas=most, quorum=quorum)
    has_lost = False
    for name, move in story:
        begun = [one for one in grid.running(name) if one not in grid.waiting(name)]
        if move in ("fail", "end") and begun:
            outcome = Outcome.FAILED if move == "fail" else Outcome.SUCCEEDED
            grid.end(begun[0], outcome, stdout=Output(1, data=name[:1].encode()), cpu_s=1.0, wall_s=1.0)
        elif move == "leave":
            grid.leave(name)
            grid.join(name)
        elif move == "wait":
            has_lost = True
            grid.wait(31.0)
            grid.join(name)
        else:
            grid.report(name, frozen=move == "freeze")
    together = (quorum or 1) - 1  # attempts whose results a quorum needs beside the first: all of them may fail
    for number in range(1, 6):
        task = grid.store.tasks.get(TaskId(job, number))
        assert task is None or has_lost or task.setbacks <= limit + together, task


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_failed_task_waits_longer_after_each_failure(policy: str) -> None:
    grid = Grid(policy=policy, max_replicas=1, lease_s=1e5)
    grid.workers(*NAMES)
    job = grid.submit(1, 9.0, max_attempts=4, retry_delay_s=10.0)
    for delay_s in (10.0, 20.0, 40.0):
        grid.end(grid.attempts_of(TaskId(job, 1))[0], Outcome.FAILED)
        grid.restart()  # the delay is stored
        grid.workers(*NAMES)
        grid.wait(delay_s - 1.0)
        grid.report("a")
        assert (grid.task(job).state, grid.attempts_of(TaskId(job, 1))) == (TaskState.QUEUED, [])
        grid.wait(1.0)
    grid.end(grid.attempts_of(TaskId(job, 1))[0])
    assert grid.job(job).state is JobState.SUCCEEDED


def test_delay_of_a_failed_task_is_bounded_and_said() -> None:
    grid = Grid(policy="first-come", lease_s=1e5)
    grid.workers("a")
    job = grid.submit(1, 9.0, max_attempts=30, retry_delay_s=60.0)
    for _ in range(10):
        grid.end(grid.running("a")[0], Outcome.FAILED)
        told, said = explain_job(grid.scheduler, job), explain_task(grid.scheduler, TaskId(job, 1))
        assert told is not None
        assert said is not None
        grid.wait(lifecycle.MAX_RETRY_DELAY_S)
    assert told.sentence.startswith("1 task failed, and waits before being tried again (60 s, doubled with each")
    assert said.sentence == "to be tried again 60 min after its last failure; failed 10 times so far"
    assert grid.task(job).state is TaskState.RUNNING


def test_no_replica_is_made_of_a_failed_task_in_its_delay() -> None:
    grid = Grid(policy="round-robin", max_replicas=None)
    grid.workers("a", "b", "c")
    job = grid.submit(1, 9.0, max_attempts=3, retry_delay_s=10.0, max_replicas="unlimited")
    assert len(grid.attempts_of(TaskId(job, 1))) == 3
    grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.report("a")
    assert not grid.running("a")


def test_job_with_a_delay_gets_replicas_only_on_request() -> None:
    grid = Grid(policy="round-robin", max_replicas=None)
    grid.workers("a", "b", "c")
    job = grid.submit(1, 9.0, retry_delay_s=10.0)
    agreeing = grid.submit(1, 8.0, retry_delay_s=10.0, quorum=2)
    assert len(grid.attempts_of(TaskId(job, 1))) == 1, "a replica would be another try without a delay"
    assert len(grid.attempts_of(TaskId(agreeing, 1))) == 2


def test_attempt_that_is_given_back_needs_no_delay() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a", "b")
    job = grid.submit(1, 9.0, retry_delay_s=10.0)
    grid.end(grid.running("a")[0], Outcome.GIVEN_BACK)
    assert grid.task(job).state is TaskState.RUNNING


def test_job_that_is_cancelled_in_its_delay_can_be_retried_at_once() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a")
    job = grid.submit(1, 9.0, retry_delay_s=10.0)
    grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.step(JobCancelled(job))
    assert not grid.scheduler.state.index.delayed.order
    assert grid.ask(grid.retry_event(job)) == Done()
    assert grid.task(job).state is TaskState.RUNNING
