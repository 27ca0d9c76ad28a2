"""Prefetching: which tasks may wait at a worker for a slot, how many, and how they are retracted."""

import dataclasses
from typing import Any

import pytest
from pydantic import TypeAdapter

from loopline_master.core.events import JobPaused, JobResumed, JobSubmitted, SchedulerSettings, WorkerDrained
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt
from loopline_master.core.policies import REGISTRY, WorkerFirst
from loopline_shared.model import AttemptId, AttemptState, Outcome
from loopline_shared.spec import MAX_RUN_CHARACTERS
from tests.scheduling.driver import Grid, facts, result, spec

QUEUEING = sorted(name for name, policy in REGISTRY.items() if issubclass(policy, WorkerFirst) and policy.prefetches)
ONE_S = 1.0  # without measurements, a slot is expected to do one reference CPU-second per second


def grid(policy: str = "first-come", **more: Any) -> Grid:
    return Grid(**{"policy": policy, "prefetch_s": 2.0, "max_replicas": 1, **more})


def states(effects: Effects) -> dict[str, AttemptState]:
    return {str(attempt): row.state for attempt, row in effects.attempts.items()}


def row(grid: Grid, attempt: AttemptId) -> Attempt:
    return grid.store.attempts[attempt]


@pytest.mark.parametrize("policy", QUEUEING)
def test_short_tasks_are_prefetched_at_a_busy_worker(policy: str) -> None:
    """At most two seconds of work per slot, in addition to the running tasks."""
    queueing = grid(policy)
    queueing.workers("a", slots=2)
    queueing.submit(10, 10.0)
    assert (len(queueing.running("a")), len(queueing.waiting("a"))) == (6, 4)
    waiting = [row(queueing, attempt) for attempt in queueing.waiting("a")]
    assert all(attempt.state is AttemptState.PREFETCHED for attempt in waiting)


@pytest.mark.parametrize("policy", QUEUEING)
def test_long_tasks_and_tasks_of_unknown_size_are_not_prefetched(policy: str) -> None:
    for size in (None, 30.0):
        queueing = grid(policy)
        queueing.workers("a")
        queueing.submit(10, size)
        assert len(queueing.running("a")) == 1


@pytest.mark.parametrize("policy", QUEUEING)
def test_long_task_keeps_its_turn_among_short_ones(policy: str) -> None:
    """Otherwise a stream of short tasks would starve it: no slot would ever become free."""
    queueing = grid(policy)
    queueing.workers("a")
    queueing.submit(2, 8.0)
    short = queueing.submit(20, 20.0)
    begun = []
    for _ in range(6):
        assert not queueing.waiting("a") or queueing.waiting("a")[0].job == short
        begun.append(queueing.running("a")[0].job)
        first = queueing.running("a")[0]
        queueing.end(first, wall_s=1.0 if first.job == short else 4.0)
    assert begun.count(3 - short) == 2


def test_unknown_sizes_are_prefetched_once_a_task_of_the_job_finished() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(5)
    assert not queueing.waiting("a")
    queueing.end(AttemptId(1, 1, 1), wall_s=1.0)
    assert [attempt.task for attempt in queueing.waiting("a")] == [3, 4]


def test_max_prefetch_bounds_the_tasks_that_wait() -> None:
    queueing = grid(max_prefetch=3)
    queueing.workers("a")
    queueing.submit(10, 0.01)
    assert len(queueing.waiting("a")) == 3


def test_very_short_tasks_are_prefetched_up_to_the_maximum() -> None:
    """They are sent in one frame, so the worker waits for no round trip."""
    queueing = grid(prefetch_s=1.0)
    queueing.workers("a", slots=2)
    queueing.submit(1000, 1.0)
    assert len(queueing.last.assigns["a"].run) == 258
    assert len(queueing.waiting("a")) == queueing.settings.max_prefetch == 256


def test_at_most_32_longer_tasks_wait_at_a_worker() -> None:
    queueing = grid("turnaround", prefetch_s=1.0)
    queueing.workers("a")
    queueing.submit(1000, 10_000.0)
    assert len(queueing.waiting("a")) == 32


def test_frame_size_is_bounded_by_the_size_of_its_runs() -> None:
    queueing = grid(prefetch_s=1.0)
    queueing.workers("a")
    queueing.submit_spec(spec(1000, 1.0).model_copy(update={"command": ["work", "x" * 150_000]}))
    frames = [queueing.last.assigns["a"]]
    while len(queueing.waiting("a")) < 256:
        frames.append(queueing.report("a").assigns["a"])
    assert len(frames) > 3
    for frame in frames:
        assert sum(len(run.command[1]) for run in frame.run) <= 50 * MAX_RUN_CHARACTERS


@pytest.mark.parametrize("off", [{"prefetch_s": 0.0}, {"max_prefetch": 0}])
def test_no_task_waits_when_prefetching_is_off(off: dict[str, float]) -> None:
    TypeAdapter(SchedulerSettings).validate_python({"policy": "first-come", **off})
    queueing = grid(**off)
    queueing.workers("a")
    queueing.submit(10, 0.1)
    assert len(queueing.running("a")) == 1


def test_tasks_of_several_slots_are_not_prefetched() -> None:
    """A task of two slots would starve beside tasks of one slot."""
    queueing = grid()
    queueing.workers("a", slots=2)
    queueing.submit(3, 3.0, requires={"slots": 2})
    assert len(queueing.running("a")) == 1


def test_prefetched_task_starts_without_a_frame_when_a_slot_becomes_free() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(3, 3.0)
    queueing.now += 1.5
    ended = queueing.end(AttemptId(1, 1, 1), wall_s=1.5)
    assert not ended.assigns["a"].run
    second = row(queueing, AttemptId(1, 2, 1))
    assert (second.state, second.waited_s) == (AttemptState.RUNNING, 1.5)
    assert second.started_at == queueing.now


def test_held_task_is_prefetched_once_it_is_released() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(2, 2.0)
    later = queueing.submit(2, 2.0)
    assert [str(attempt) for attempt in queueing.waiting("a")] == ["1.2.1", f"{later}.1.1"]
    queueing.end(AttemptId(1, 1, 1))
    assert [str(attempt) for attempt in queueing.waiting("a")] == [f"{later}.1.1"]
    queueing.end(AttemptId(1, 2, 1))
    assert [str(attempt) for attempt in queueing.waiting("a")] == [f"{later}.2.1"]


def test_prefetched_task_moves_to_an_idle_worker_in_one_step() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(3, 3.0)
    moved = queueing.join("b")
    assert states(moved)["1.3.1"] is AttemptState.RETRACTING
    assert [str(attempt) for attempt in queueing.running("b")] == ["1.3.2"]
    assert not row(queueing, AttemptId(1, 3, 2)).replica
    assert [str(attempt) for attempt in queueing.running("a")] == ["1.1.1", "1.2.1"]


def test_prefetched_task_does_not_move_where_it_would_finish_later() -> None:
    slow = dataclasses.replace(facts(), memory_bytes=10**9, speed=0.25)
    queueing = grid()
    queueing.workers("a")
    queueing.submit(2, 2.0)
    queueing.join("b", slow)
    assert not queueing.running("b")


def test_prefetched_task_moves_to_a_slow_worker_behind_a_late_task() -> None:
    """The scheduler asks to be woken for the move, since no other event occurs in the grid."""
    queueing = grid(lease_s=1e6)
    queueing.workers("a")
    queueing.submit(2, 2.0)
    queueing.join("b", dataclasses.replace(facts(), memory_bytes=10**9, speed=0.25))
    assert queueing.scheduler.wake_at is not None
    assert 1.0 < queueing.scheduler.wake_at - queueing.now < 60.0, "the first was expected to end after one second"
    queueing.wait(queueing.scheduler.wake_at - queueing.now)
    assert [str(attempt) for attempt in queueing.running("b")] == ["1.2.2"]


def test_prefetched_task_is_moved_instead_of_replicated() -> None:
    queueing = grid("round-robin", max_replicas=2)
    queueing.workers("a")
    queueing.submit(2, 2.0)
    queueing.join("b")
    alive = [a for a in queueing.store.attempts.values() if a.state in ("dispatched", "running")]
    assert sorted((a.task, a.worker) for a in alive) == [(1, "a"), (2, "b")]
    assert not any(a.replica for a in alive)


def test_drain_and_pause_retract_tasks_that_have_not_begun() -> None:
    for event in (WorkerDrained("a"), JobPaused(1)):
        queueing = grid()
        queueing.workers("a")
        queueing.submit(3, 3.0)
        queueing.step(event)
        assert [str(attempt) for attempt in queueing.running("a")] == ["1.1.1"]
        assert queueing.task(1, 2).state == "queued"
        queueing.step(JobResumed(1))
        queueing.join("b")
        assert queueing.running("b"), "and another worker has it"


def test_no_task_is_prefetched_behind_a_frozen_one() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(1, 1.0)
    queueing.report("a", frozen=True)
    queueing.submit(5, 5.0)
    assert not queueing.waiting("a")


def test_preempted_prefetched_task_starts_elsewhere_without_counting_as_failure() -> None:
    queueing = grid(max_attempts=1)
    queueing.workers("a", "b")
    queueing.submit(4, 4.0)
    given_back = [AttemptId(1, 3, 1), AttemptId(1, 4, 1)]
    for attempt in given_back:
        name = next(n for n in "ab" if attempt in queueing.waiting(n))
        queueing.report(name, result(attempt, Outcome.GIVEN_BACK), slots=0)
    assert queueing.task(1, 3).failures == queueing.task(1, 4).failures == 0
    assert all(
        queueing.task(1, number).attempts == 2 or queueing.task(1, number).state == "queued" for number in (3, 4)
    )


def test_long_task_is_retracted_if_it_finds_no_slot() -> None:
    """The owner took the slot while the frame was under way."""
    queueing = grid()
    queueing.workers("a")
    queueing.submit(1, 100.0)
    attempt = row(queueing, AttemptId(1, 1, 1))
    queueing.agents["a"].facts = facts(0)  # so that it says that it waits
    queueing.report("a")
    assert attempt.id not in queueing.agents["a"].running
    assert row(queueing, attempt.id).state is AttemptState.RETRACTING


def test_task_of_several_slots_is_retracted_if_it_finds_no_slot() -> None:
    """A waiting task counts as one slot: the other slot would be assigned to a task and then used by both."""
    queueing = grid()
    queueing.join("a", facts(3))
    queueing.submit(1, 100.0)
    wide = AttemptId(queueing.submit(1, 1.0, requires={"slots": 2}), 1, 1)
    agent = queueing.agents["a"]
    agent.facts = facts(2)  # so that it says that it waits
    queueing.report("a", slots=3, deliver=False)
    queueing.step(JobSubmitted("user", spec(1, 0.5)), deliver=False)
    agent.facts = facts(3)  # it begins; the frame that crosses its report has not arrived
    queueing.report("a")
    assert row(queueing, wide).state is AttemptState.CANCELLING
    queueing.report("a")
    assert queueing.running("a") == [AttemptId(1, 1, 1), AttemptId(2, 1, 2), AttemptId(3, 1, 2)]
    assert queueing.waiting("a") == [AttemptId(3, 1, 2)], "the wide task has both slots, as the earlier job"


def test_slot_is_reassigned_while_a_cancel_crosses_the_start() -> None:
    """Frames cross: for a while more slots are assigned than exist, and the new task waits at the worker."""
    queueing = grid()
    queueing.workers("a")
    queueing.submit(1, 1.0)
    ahead = queueing.step(JobSubmitted("user", spec(1, 0.5)), deliver=False).assigns["a"]
    queueing.step(JobSubmitted("user", spec(1, 100.0)), deliver=False)
    queueing.report("a", result(AttemptId(1, 1, 1)), deliver=False)  # which left before job 2 came
    crossing = queueing.step(JobPaused(2), deliver=False).assigns["a"]
    assert ([str(run.attempt) for run in crossing.run], [str(a) for a in crossing.cancel]) == (["3.1.1"], ["2.1.1"])
    agent = queueing.agents["a"]
    agent.take(agent.mail.pop(0))
    assert list(agent.running) == [run.attempt for run in ahead.run]
    queueing.report("a")
    assert (queueing.running("a"), queueing.waiting("a")) == ([AttemptId(3, 1, 1)], [])
    queueing.report("a")
    assert row(queueing, AttemptId(2, 1, 1)).state is AttemptState.CANCELLED
    assert row(queueing, AttemptId(3, 1, 1)).state is AttemptState.RUNNING


def test_prefetched_task_of_a_silent_worker_is_lost() -> None:
    """A new attempt is started; when the worker is back, the old one does not run."""
    queueing = grid(lease_s=30.0)
    queueing.workers("a")
    queueing.submit(2, 2.0)
    queueing.wait(31.0)
    assert row(queueing, AttemptId(1, 2, 1)).state is AttemptState.LOST
    queueing.join("a")
    assert [str(attempt) for attempt in queueing.running("a")] == ["1.1.1"]
    queueing.report("a")
    assert [str(attempt) for attempt in queueing.running("a")] == ["1.1.1", "1.2.2"]


def test_restarted_agent_keeps_its_queue() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(3, 3.0)
    for attempt in queueing.running("a")[:1]:  # the running attempt is given back
        queueing.step()
        del queueing.agents["a"].running[attempt]
        queueing.join("a", reports=False)
        queueing.report("a", result(attempt, Outcome.GIVEN_BACK))
    assert [str(attempt) for attempt in queueing.running("a")] == ["1.2.1", "1.3.1", "1.1.2"]


def test_restarted_master_knows_the_prefetched_tasks() -> None:
    queueing = grid()
    queueing.workers("a")
    queueing.submit(3, 3.0)
    queueing.restart()
    assert queueing.scheduler.state.index.attempts.queues.work_ms == {"a": 2000}
    queueing.join("a")
    assert len(queueing.waiting("a")) == 2
