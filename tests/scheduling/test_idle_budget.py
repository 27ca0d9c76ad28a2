"""A job that makes no progress holds others only for a bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobCancelled, JobSubmitted
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.wings.exemptions.idle_budget import IdleExemptions
from loopline_master.core.wings.exemptions.overdrawn import LOOK_EVERY_S
from loopline_shared.model import AttemptId, JobState, Outcome
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import START, Grid, facts, spec

BUDGET_S = 300.0


def hostile_grid(single: str = "hold") -> tuple[Grid, int, int]:
    """X keeps the only slot with label a forever; Y, which claims a tiny size, needs that label and waits."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1, single_task_order=single)
    grid.join("ant", facts(1, labels=["a"]))
    grid.join("bee", facts(1))
    x = grid.submit(1, requires={"labels": ["a"]})
    y = grid.submit(1, 1e-6, requires={"labels": ["a"]})
    assert grid.running("ant") == [AttemptId(x, 1, 1)]
    return grid, x, y


def live(grid: Grid, seconds: float) -> None:
    """Let workers report, and wake the scheduler when it asked to be."""
    until = grid.now + seconds
    while grid.now < until:
        grid.now = min(until, grid.scheduler.wake_at or until)
        for name in grid.agents:
            grid.report(name)


@pytest.mark.parametrize("single", ["hold", "deliver"])
def test_job_waiting_for_a_busy_worker_stops_holding_others(single: str) -> None:
    grid, _, y = hostile_grid(single)
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    if single == "deliver":
        grid.end(AttemptId(later, 1, 1))
    live(grid, LOOK_EVERY_S)
    assert grid.job(y).idle_s <= LOOK_EVERY_S, "not for the time before it held anybody"
    live(grid, BUDGET_S - 2 * LOOK_EVERY_S)
    assert not grid.job(y).stalled
    assert grid.job(later).state is not JobState.SUCCEEDED
    live(grid, 4 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    if single == "hold":
        grid.end(AttemptId(later, 1, 1))
    assert grid.job(later).state is JobState.SUCCEEDED
    assert [(one.job, one.reason) for one in grid.store.exemptions.values()] == [(y, "stalled")]
    assert not grid.store.passings
    explained = explain_job(grid.scheduler, y)
    assert explained is not None
    assert "without progress while slots were free for them" in explained.sentence


def test_job_in_the_delay_of_a_failed_task_stops_holding_others() -> None:
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1))
    job = grid.submit(1, 1.0, retry_delay_s=80_000.0)
    grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    later = grid.ask(JobSubmitted("stranger", spec(1, 5.0))).job  # type: ignore[union-attr]
    live(grid, BUDGET_S - 2 * LOOK_EVERY_S)
    assert not grid.running("ant"), "the order holds while the budget lasts"
    live(grid, 4 * LOOK_EVERY_S)
    assert grid.running("ant") == [AttemptId(later, 1, 1)]


def test_idle_budget_is_not_charged_while_no_slot_is_free_for_others() -> None:
    grid, _, y = hostile_grid()
    grid.ask(JobSubmitted("stranger", spec(2, 5.0)))
    assert len(grid.running("bee")) == 1, "only its last task is held"
    live(grid, 3 * BUDGET_S)
    assert not grid.job(y).stalled
    assert grid.job(y).idle_s == 0


def test_stalled_job_holds_others_again_after_progress() -> None:
    grid, x, y = hostile_grid()
    later = grid.ask(JobSubmitted("stranger", spec(3, 5.0))).job  # type: ignore[union-attr]
    grid.end(AttemptId(later, 1, 1))
    grid.end(AttemptId(later, 2, 1))
    live(grid, BUDGET_S + 2 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    another = grid.ask(JobSubmitted("stranger", spec(1, 7.0))).job  # type: ignore[union-attr]
    grid.end(AttemptId(x, 1, 1))
    assert grid.running("ant") == [AttemptId(y, 1, 1)]
    live(grid, 3 * LOOK_EVERY_S)
    assert not grid.job(y).stalled
    assert grid.job(another).state is not JobState.SUCCEEDED
    grid.restart()
    assert not grid.job(y).stalled


def test_stalled_job_can_be_cancelled_and_forgotten() -> None:
    grid, _, y = hostile_grid()
    grid.ask(JobSubmitted("stranger", spec(1, 5.0)))
    live(grid, BUDGET_S + 2 * LOOK_EVERY_S)
    assert grid.job(y).stalled
    grid.ask(JobCancelled(y))
    grid.report("ant")
    assert y not in grid.scheduler.state.jobs
    wing = grid.scheduler.state.wings[IdleExemptions]
    assert not wing.workers_to_hear(grid.now + LOOK_EVERY_S)
    assert wing.due_at() is None
    live(grid, 2 * LOOK_EVERY_S)


def test_idle_budget_is_not_charged_while_the_job_computes() -> None:
    """The only task takes far longer than the budget, beside a free slot."""
    grid = Grid(idle_budget_s=BUDGET_S, lease_s=1e9, max_replicas=1)
    grid.join("ant", facts(1))
    grid.join("bee", facts(1))
    honest = grid.submit(1, 20 * BUDGET_S)
    grid.submit(1, 30 * BUDGET_S)
    live(grid, 10 * BUDGET_S)
    assert grid.job(honest).idle_s == 0
    assert not grid.job(honest).stalled


@settings(PATIENT, max_examples=tried(15))
@given(
    sizes=st.lists(st.sampled_from([1e-6, 1.0, 30.0, 400.0, 900.0]), min_size=1, max_size=4),
    cancels=st.lists(st.integers(0, 20), max_size=3),
)
def test_wait_behind_idle_jobs_is_bounded_by_the_sum_of_their_budgets(sizes: list[float], cancels: list[int]) -> None:
    """Whether the jobs that wait for a busy worker were submitted together or one after another."""
    grid, _, _ = hostile_grid()
    for size in sizes:
        grid.submit(1, size, requires={"labels": ["a"]})
    stranger = grid.ask(JobSubmitted("stranger", spec(1, 1e3))).job  # type: ignore[union-attr]
    budgets_s = BUDGET_S + sum(max(BUDGET_S, size) for size in sizes)
    for _ in cancels:
        live(grid, LOOK_EVERY_S)
    live(grid, budgets_s + (3 + len(sizes)) * LOOK_EVERY_S)
    grid.end(AttemptId(stranger, 1, 1))
    assert grid.job(stranger).state is JobState.SUCCEEDED, f"held for {grid.now - START:.0f} s"
    assert not grid.store.passings
