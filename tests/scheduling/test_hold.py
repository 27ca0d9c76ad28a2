"""The hold: its index against the definition, and the definition through the scheduler."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from loopline_master.core.events import JobCancelled, JobPaused, JobResumed
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.entities import UNKNOWN_WEIGHT
from loopline_master.core.kernel.index.job_order import HoldIndex
from loopline_shared.model import AttemptId, JobState, Order, TaskId
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid

arrivals = st.integers(1, 60)
weights = st.sampled_from([1.0, 2.0, 2.0, 3.0, UNKNOWN_WEIGHT])


class HoldMachine(RuleBasedStateMachine):
    """Jobs arrive, change their weight (a retried job arrives again) and leave, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.naive = HoldIndex(), dict[int, float]()

    @rule(arrival=arrivals, weight=weights)
    def put(self, arrival: int, weight: float) -> None:
        self.index.put(arrival, weight)
        self.naive[arrival] = weight

    @rule(first=arrivals, count=st.integers(1, 40), weight=weights)
    def put_many(self, first: int, count: int, weight: float) -> None:
        for arrival in range(first, first + count):
            self.put(arrival, weight)

    @rule(arrival=arrivals)
    def drop(self, arrival: int) -> None:
        self.index.drop(arrival)
        self.naive.pop(arrival, None)

    @rule(count=st.integers(1, 40))
    def drop_the_first(self, count: int) -> None:
        for arrival in sorted(self.naive)[:count]:
            self.drop(arrival)

    @invariant()
    def answers_by_the_definition(self) -> None:
        ordered = sorted(self.naive.items())
        for arrival in {0, 104, *(near for a, _ in ordered[:3] + ordered[-3:] for near in (a, a + 1))}:
            for weight in (0.5, 1.0, 2.0, UNKNOWN_WEIGHT):
                holders = [a for a, w in ordered if a < arrival and w <= weight]
                assert self.index.predecessors(arrival, weight) == holders
                assert self.index.blocker(arrival, weight) == (holders[-1] if holders else None)
                assert self.index.first(arrival, weight) == (holders[0] if holders else None)

    @invariant()
    def equals_one_built_afresh(self) -> None:
        again = HoldIndex()
        for arrival, weight in sorted(self.naive.items(), reverse=True):
            again.put(arrival, weight)
        assert self.index == again


TestHoldIndex = HoldMachine.TestCase
TestHoldIndex.settings = settings(PATIENT, max_examples=tried(30), stateful_step_count=20)


@settings(PATIENT, max_examples=tried(20, 1000))
@given(
    sizes=st.lists(st.sampled_from([None, 1.0, 2.0, 3.0]), min_size=1, max_size=6),
    counts=st.lists(st.integers(1, 3), min_size=6, max_size=6),
    paused=st.sets(st.integers(1, 6)),
)
def test_last_task_is_held_exactly_as_defined(sizes: list[float | None], counts: list[int], paused: set[int]) -> None:
    grid = Grid()
    jobs = [grid.submit(count, size) for count, size in zip(counts, sizes, strict=False)]
    for job in jobs:
        if job in paused:
            grid.step(JobPaused(job))
    state = grid.scheduler.state
    for place, job in enumerate(jobs):
        mine = state.jobs[job]
        may_not_pass = [
            earlier
            for earlier in jobs[:place]
            if earlier not in paused
            and (size := sizes[earlier - 1]) is not None
            and (sizes[job - 1] is None or size <= sizes[job - 1])
        ]
        assert state.index.is_held(mine) == bool(counts[place] == 1 and may_not_pass)


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        (1.0, 1.0, True),  # ties count
        (1.0, 2.0, True),
        (2.0, 1.0, False),  # a strictly smaller job may pass
        (None, 1.0, False),  # a job without a size has no claim
        (1e15, None, True),
        (None, None, False),
    ],
)
def test_job_is_held_by_an_earlier_one_that_is_not_larger(
    first: float | None, second: float | None, *, held: bool
) -> None:
    grid = Grid()
    grid.workers("w", "x")
    grid.submit(1, first, max_replicas=1)
    later = grid.submit(1, second)
    assert bool(grid.attempts_of(TaskId(later, 1))) != held
    assert (grid.job(later).held_at is not None) == held
    assert (grid.job(later).released_at is None) == held


def test_only_the_last_fresh_task_is_held_until_its_predecessor_ends() -> None:
    grid = Grid(policy="first-come")
    first = grid.submit(1, 1.0, max_replicas=1)
    later = grid.submit(3, 1.0, max_replicas=1)
    grid.workers("a", "b", "c", "d")
    assert [len(grid.attempts_of(TaskId(later, n))) for n in (1, 2, 3)] == [1, 1, 0]
    assert not grid.running("d")
    effects = grid.end(grid.attempts_of(TaskId(first, 1))[0])
    assert [attempt.task_id for attempt in effects.attempts.values()][1:] == [TaskId(later, 3)]
    assert grid.job(later).held_at is not None
    assert grid.job(later).released_at == grid.now


def test_task_that_was_started_once_is_never_held() -> None:
    """The job's last fresh task already keeps the job from completing, so a lost task may restart at once."""
    grid = Grid(policy="first-come")
    grid.submit(1, 1.0, max_replicas=1)
    later = grid.submit(2, 1.0, max_replicas=1)
    grid.workers("a", "b")
    grid.report("b")
    assert grid.attempt(later, 1, 1).state == "running"
    grid.report("b", holding=[])
    assert grid.attempt(later, 1, 1).state == "lost"
    assert grid.attempt(later, 1, 2).state == "dispatched"


def test_no_job_is_held_under_order_none() -> None:
    grid = Grid(order=Order.NONE)
    grid.workers("a", "b")
    grid.submit(1, 1.0, max_replicas=1)
    later = grid.submit(1, 1.0)
    assert grid.attempts_of(TaskId(later, 1))
    assert grid.job(later).held_at is None


def test_paused_job_holds_no_other_until_it_is_resumed() -> None:
    grid = Grid()
    first = grid.submit(2, 1.0, max_replicas=1)
    later = grid.submit(2, 1.0, max_replicas=1)
    grid.step(JobPaused(first))
    grid.workers("a")
    assert grid.running("a") == [AttemptId(later, 1, 1)]
    grid.step(JobResumed(first))
    grid.end(AttemptId(later, 1, 1))
    assert grid.scheduler.state.index.is_held(grid.scheduler.state.jobs[later])
    assert grid.running("a") == [AttemptId(first, 1, 1)]


# --- a job without a size, weighed by its measured tasks ---------------------------------------------------------


def behind_a_sweep(order: Order = Order.HOLD, sweep: float = 1000.0) -> tuple[Grid, int]:
    """A sweep with a size keeps worker z busy; a job of four tasks without a size has the other workers."""
    grid = Grid(policy="first-come", order=order, max_replicas=1)
    grid.join("z")
    grid.submit(1, sweep)
    job = grid.submit(4, "unknown")  # type: ignore[arg-type]
    grid.workers("a", "b", "c")
    return grid, job


def test_job_without_a_size_is_released_by_its_measured_tasks() -> None:
    grid, job = behind_a_sweep()
    grid.end(AttemptId(job, 1, 1), wall_s=10.0)
    assert grid.job(job).shown == pytest.approx(2 * (10.0 + 3 * 10.0))
    assert grid.attempts_of(TaskId(job, 4)), "80 s is less than the sweep's 1000 s"
    assert grid.job(job).released_at == grid.now


def test_job_without_a_size_stays_held_if_measured_larger_than_its_predecessor() -> None:
    grid, job = behind_a_sweep(sweep=60.0)
    grid.end(AttemptId(job, 1, 1), wall_s=10.0)
    assert not grid.attempts_of(TaskId(job, 4))
    says = explain_job(grid.scheduler, job)
    assert says is not None
    assert "counts as 80 s, twice what its tasks have measured" in says.sentence
    grid.end(AttemptId(job, 2, 1), wall_s=2.0)
    assert grid.job(job).shown == pytest.approx(2 * (12.0 + 2 * 6.0))
    assert grid.attempts_of(TaskId(job, 4)), "48 s is less than 60 s"


def test_measured_weight_only_falls() -> None:
    grid, job = behind_a_sweep(sweep=30.0)
    grid.end(AttemptId(job, 1, 1), wall_s=10.0)
    grid.end(AttemptId(job, 2, 1), wall_s=100.0)
    assert grid.job(job).shown == pytest.approx(80.0)
    assert not grid.attempts_of(TaskId(job, 4))


def test_job_with_a_measured_weight_holds_no_other() -> None:
    grid, job = behind_a_sweep(sweep=60.0)
    grid.end(AttemptId(job, 1, 1), wall_s=10.0)
    later = grid.submit(1, 5000.0)
    held_by = grid.scheduler.state.index.blockers[later]
    assert held_by == grid.job(1).arrival, "by the sweep alone"


def test_computed_job_without_a_size_is_delivered_by_its_measured_weight() -> None:
    grid, job = behind_a_sweep(Order.DELIVER)
    for task in (1, 2, 3):
        grid.end(AttemptId(job, task, 1), wall_s=10.0)
        assert grid.job(job).shown is None, "it is not computed yet"
    grid.end(AttemptId(job, 4, 1), wall_s=10.0)
    assert grid.job(job).shown == pytest.approx(80.0)
    assert grid.job(job).state is JobState.SUCCEEDED
    assert not grid.store.passings


def test_retried_job_is_weighed_by_all_its_measured_tasks() -> None:
    grid, job = behind_a_sweep(sweep=60.0)
    for task, wall_s in ((1, 2.0), (2, 2.0), (3, 200.0)):
        grid.end(AttemptId(job, task, 1), wall_s=wall_s)
    assert grid.job(job).shown == pytest.approx(16.0)
    grid.step(JobCancelled(job))
    for name in "abc":
        grid.report(name)  # confirms that its cancelled attempts are killed
        grid.leave(name)
    grid.ask(grid.retry_event(job))
    again = grid.job(job)
    assert again.shown == pytest.approx(2 * again.used * 4 / 3), "its weight was 16 s until it was cancelled"
    assert grid.scheduler.state.index.is_held(grid.scheduler.state.jobs[job])
