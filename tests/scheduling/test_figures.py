"""Figures that a worker reports for an attempt are cut to possible values (reports/figures.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.kernel.sessions.figures import MOST_CPUS, MOST_SPEED, ROUNDING_S
from loopline_shared.model import AttemptId, JobState, Outcome, Phases, TaskId, TaskState
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts, result

FIRST = AttemptId(1, 1, 1)


def liar(out_s: float = 1.0, outcome: Outcome = Outcome.SUCCEEDED, **figures: float) -> Grid:
    """A job of two tasks and size 100 runs on a worker; its first attempt started a given time ago."""
    grid = Grid(overdrawn_after=10.0, lease_s=1e6, max_replicas=1)
    grid.join("a")
    grid.submit(2, 100.0)
    grid.now += out_s
    grid.report("a", result(FIRST, outcome, **{"wall_s": 1e9, "cpu_s": 1e9, **figures}), lies=True)
    return grid


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_impossible_run_time_does_not_overdraw_the_job(outcome: Outcome) -> None:
    grid = liar(outcome=outcome)
    assert grid.job(1).used == pytest.approx(1.0, abs=0.01)
    grid.join("b")
    later = grid.submit(1, 200.0)
    assert not grid.attempts_of(TaskId(later, 1)), "it is held"
    grid.wait(40.0)
    grid.step()
    assert not grid.job(1).overdrawn
    assert not grid.store.exemptions


def test_impossible_run_time_does_not_enter_predictions() -> None:
    grid = liar()
    grid.end(*grid.running("a"), wall_s=1.0, cpu_s=1.0)
    assert grid.job(1).state is JobState.SUCCEEDED
    job = grid.job(grid.submit(1))
    assert job.predicted is not None
    assert job.predicted.p90 < 20.0
    assert job.size == pytest.approx(1.0, rel=0.3)


def test_rows_and_accounts_store_possible_figures() -> None:
    grid = liar(system_s=1e9, peak_memory_bytes=2**50)  # type: ignore[arg-type]
    attempt = grid.attempt(1)
    assert attempt.wall_s == attempt.cpu_s == attempt.system_s == pytest.approx(1.0, abs=0.01)
    assert attempt.peak_memory_bytes == 8 * 10**9
    assert grid.job(1).useful_cpu_ms == pytest.approx(1000, abs=2)


def test_worker_that_reports_impossible_figures_is_flagged() -> None:
    grid = liar()
    assert grid.last.overstated == [("a", FIRST)]
    assert grid.store.workers["a"].overstated == 1
    says = explain_worker(grid.scheduler, "a")
    assert says is not None
    assert "impossible times, memory, speed or cores (1 time)" in says.sentence


def test_slightly_fast_clock_is_cut_but_not_flagged() -> None:
    grid = liar(out_s=100.0, wall_s=101.0, cpu_s=101.0)
    assert grid.attempt(1).wall_s == pytest.approx(100.0, abs=0.01)
    assert grid.store.workers["a"].overstated == 0


def test_phases_and_slot_are_bounded() -> None:
    grid = Grid()
    grid.join("a")
    grid.submit()
    grid.now += 5.0
    reported = Phases(inputs_s=1.0, began_s=2.0, ended_s=1e8, frozen_s=1e7, delivered_s=1e9)
    grid.report("a", result(FIRST, wall_s=3.0, slot=1, phases=reported), lies=True)
    attempt = grid.attempt(1)
    most_s = 5.0 + ROUNDING_S
    assert attempt.phases == Phases(1.0, 2.0, most_s, most_s, most_s)
    assert (attempt.frozen_s, attempt.wall_s) == (most_s, 3.0)
    assert grid.store.workers["a"].overstated == 1


def test_figures_of_a_result_kept_by_a_disconnected_worker_are_accepted() -> None:
    grid = Grid(lease_s=15.0)
    grid.join("a")
    grid.submit(1, max_replicas=1)
    grid.wait(15.0)
    assert grid.task(1).state is TaskState.QUEUED
    grid.now += 500.0
    grid.join("a", reports=False)
    grid.report("a", result(FIRST, wall_s=510.0, cpu_s=500.0))
    assert (grid.attempt(1).wall_s, grid.attempt(1).cpu_s) == (510.0, 500.0)
    assert grid.store.workers["a"].overstated == 0


def test_possible_time_counts_from_the_dispatch_across_a_restart() -> None:
    grid = Grid()
    grid.workers("a", "b")
    grid.submit(2)
    grid.now += 100.0
    grid.restart()
    grid.workers("a", "b")
    grid.now += 10.0
    grid.report("a", result(FIRST, wall_s=105.0))
    grid.report("b", result(AttemptId(1, 2, 1), wall_s=1e6), lies=True)
    assert grid.attempt(1).wall_s == 105.0
    assert grid.attempt(1, 2).wall_s == pytest.approx(110.0, abs=0.01)
    assert [grid.store.workers[name].overstated for name in "ab"] == [0, 1]


def test_cpu_time_is_accepted_up_to_the_cores_of_the_computer() -> None:
    grid = Grid()
    grid.join("a", facts(4))
    grid.submit()
    grid.now += 10.0
    grid.report("a", result(FIRST, wall_s=10.0, cpu_s=39.0), lies=True)
    assert grid.attempt(1).cpu_s == 39.0
    grid.submit()
    grid.now += 10.0
    grid.report("a", result(AttemptId(2, 1, 1), wall_s=10.0, cpu_s=400.0), lies=True)
    assert grid.attempt(2).cpu_s == pytest.approx(40.0, abs=0.01)


def test_figures_of_gang_members_are_bounded() -> None:
    grid = Grid()
    grid.workers("a", "b", gangs=True)
    job = grid.submit(1, nodes=2)
    for _ in range(3):
        for name in "ab":
            grid.report(name)
    grid.now += 10.0
    for name in "ab":
        grid.report(name, *[result(attempt, wall_s=1e9, cpu_s=1e9) for attempt in grid.running(name)], lies=True)
    assert grid.job(job).state is JobState.SUCCEEDED
    assert [grid.attempt(job, 1, number).wall_s for number in (1, 2)] == [pytest.approx(10.0, abs=0.01)] * 2
    (program,) = grid.store.programs.values()
    assert program.window[-1].work == pytest.approx(20.0, abs=0.01)


def test_figures_of_an_unknown_attempt_are_bounded_by_its_workers_age() -> None:
    grid = Grid()
    grid.join("a")
    grid.now += 30.0
    grid.report("a", result(AttemptId(7, 1, 1), wall_s=1e9, cpu_s=1e9), lies=True)
    ((_, reported),) = grid.last.late
    assert reported.wall_s == reported.cpu_s == pytest.approx(30.0, abs=0.01)
    assert grid.store.workers["a"].overstated == 0, "the worker may have been forgotten since"


def test_overstated_speed_charges_the_job_by_other_workers_speeds() -> None:
    grid = Grid()
    grid.workers("b", "c", "d", "e", "f", "g")
    job = grid.submit(6)
    for name in "bcdefg":
        grid.end(grid.running(name)[0], wall_s=10.0, cpu_s=10.0)
    assert grid.job(job).used == pytest.approx(60.0)
    for name in "bcdefg":
        grid.report(name, slots=0)
    grid.join("fast", replace(facts(), speed=1e6))
    next_job = grid.submit(2)
    grid.end(*grid.running("fast"), wall_s=10.0, cpu_s=10.0)
    assert grid.job(next_job).used == pytest.approx(40.0), "four times the 90th percentile"


def test_run_of_a_larger_given_size_is_charged_in_full() -> None:
    """Earlier jobs of the program were a hundred times smaller, and this one says so."""
    grid = Grid()
    grid.workers("b", "c", "d", "e", "f", "g")
    grid.submit(6, 60.0)
    for name in "bcdefg":
        grid.end(grid.running(name)[0], wall_s=10.0, cpu_s=10.0)
    large = grid.submit(1, 1000.0, max_replicas=1)
    name = next(name for name in "bcdefg" if grid.running(name))
    grid.end(grid.running(name)[0], wall_s=1000.0, cpu_s=1000.0)
    assert grid.job(large).used == pytest.approx(1000.0)
    assert grid.store.workers[name].health >= 0


figures = st.floats(0, 1e10)


@settings(PATIENT, max_examples=tried(60))
@given(
    out_s=st.floats(0, 1e4),
    outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED]),
    wall_s=figures,
    cpu_s=figures,
    system_s=figures,
    peak_memory_bytes=st.integers(0, 2**53),
    phases=st.none() | st.builds(Phases, figures, figures, figures, figures, figures),
    slot=st.integers(0, 2),
)
def test_stored_figures_are_always_possible(
    out_s: float,
    outcome: Outcome,
    wall_s: float,
    cpu_s: float,
    system_s: float,
    peak_memory_bytes: int,
    phases: Phases | None,
    slot: int,
) -> None:
    grid = Grid(lease_s=1e6, max_replicas=1, max_attempts=2)
    grid.join("a", facts(2))
    grid.submit(2, requires={"slots": 2})
    grid.now += out_s
    reported = result(
        FIRST,
        outcome,
        wall_s=wall_s,
        cpu_s=cpu_s,
        system_s=system_s,
        peak_memory_bytes=peak_memory_bytes,
        phases=phases,
        slot=slot,
    )
    grid.report("a", reported, lies=True)
    most_s, attempt, job = out_s + 2 * ROUNDING_S, grid.attempt(1), grid.job(1)
    assert max(attempt.wall_s, attempt.fetch_s, attempt.frozen_s, attempt.deliver_s, job.used, attempt.work) <= most_s
    assert attempt.system_s <= attempt.cpu_s <= 2 * most_s
    assert attempt.peak_memory_bytes <= 8 * 10**9
    assert attempt.dispatched_at <= (attempt.started_at or grid.now) <= grid.now
    assert job.useful_cpu_ms + job.lost_cpu_ms + job.wasted_cpu_ms <= 2000 * most_s + 1
    for program in grid.store.programs.values():
        assert program.window[-1].work <= most_s
    fresh = grid.job(grid.submit(1))
    if fresh.predicted is not None:
        assert fresh.predicted.mean <= most_s


def test_impossible_facts_and_loads_are_cut_and_flagged() -> None:
    grid = Grid()
    grid.join("a", replace(facts(1), speed=1e6, cpus=65536))
    grid.report("a", spare_cpu=1e9)
    worker = grid.scheduler.state.workers["a"]
    assert (worker.facts.speed, worker.facts.cpus, worker.overstated) == (MOST_SPEED, MOST_CPUS, 1)
    assert worker.load is not None
    assert worker.load.spare_cpu == MOST_CPUS
    says = explain_worker(grid.scheduler, "a")
    assert says is not None
    assert "impossible times, memory, speed or cores (1 time)" in says.sentence
    grid.restart()
    assert grid.store.workers["a"].facts.speed == MOST_SPEED


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_result_at_a_claimed_speed_does_not_overdraw_its_job(outcome: Outcome) -> None:
    grid = Grid(overdrawn_after=10.0, lease_s=1e6, max_replicas=1)
    grid.join("a", replace(facts(1), speed=64.0))
    grid.join("b", facts(1))
    grid.submit(2, 5.0, requires={"slots": 1})
    grid.end(AttemptId(1, 2, 1))
    grid.end(AttemptId(1, 1, 1), outcome, wall_s=20.0, cpu_s=20.0)
    assert grid.job(1).used > 1000.0
    assert grid.job(1).counted == pytest.approx(20.0, abs=0.01)


def test_claimed_speed_does_not_overdraw_a_job() -> None:
    """Until results have proven it, an attempt counts as on a computer of reference speed."""
    grid = Grid(overdrawn_after=10.0, lease_s=1e6, max_replicas=1)
    grid.join("a", replace(facts(1), speed=64.0))
    grid.join("b", facts(1))
    grid.submit(1, 5.0, requires={"slots": 1})
    later = grid.submit(1, 5.0)
    assert not grid.attempts_of(TaskId(later, 1)), "it is held"
    for _ in range(4):
        grid.now += 10.0
        grid.report("a")
        grid.wait(0.1)
    assert not grid.job(1).overdrawn, "it has run for 40 s"
    grid.now += 30.0
    grid.report("a")
    grid.wait(31.0)
    assert grid.job(1).overdrawn
