"""Sizes that users do not give: predicted at submission, recorded for the hold, refined for the policies."""

from __future__ import annotations

from typing import Any

import pytest

from loopline_master.core.estimates import measure
from loopline_master.core.events import JobCancelled
from loopline_master.core.kernel.entities import Worker
from loopline_shared.model import Facts, Load, SizeSource
from loopline_shared.spec import JobSpec, TaskSpec
from tests.scheduling.driver import Grid, facts, spec


def ran(grid: Grid, wall_s: float, times: int = 1, **more: Any) -> None:
    """Run the program ``times`` times, with one task of ``wall_s`` on a core of speed 1."""
    for _ in range(times):
        grid.submit(1, **more)
        grid.end(grid.running("a")[0], wall_s=wall_s)


def known(wall_s: float = 10.0, times: int = 20) -> Grid:
    grid = Grid(policy="first-come")
    grid.join("a")
    ran(grid, wall_s, times)
    return grid


def test_first_run_of_a_program_has_unknown_size() -> None:
    grid = Grid()
    job = grid.job(grid.submit(3))
    assert (job.size, job.size_source, job.predicted) == (None, SizeSource.UNKNOWN, None)


def test_given_size_is_used() -> None:
    job = (grid := known()).job(grid.submit(3, 5.0))
    assert (job.size, job.size_source, job.predicted) == (5.0, SizeSource.GIVEN, None)


def test_missing_size_is_predicted_with_its_spread() -> None:
    job = (grid := known()).job(grid.submit(3))
    assert (job.size, job.size_source) == (30.0, SizeSource.PREDICTED)
    assert job.predicted is not None
    assert job.predicted.p10 < job.predicted.work == 10.0 < job.predicted.p90


def test_equal_jobs_of_a_program_have_equal_sizes_despite_scatter() -> None:
    grid = known()
    first = grid.submit(3)
    for _ in range(2):
        grid.end(grid.running("a")[0], wall_s=9.0)
    later = grid.submit(3)
    predicted = [grid.job(job).predicted for job in (first, later)]
    assert predicted[0] != predicted[1]
    assert grid.job(first).size == grid.job(later).size == 30.0


def test_program_that_changed_clearly_gets_another_size() -> None:
    grid = known()
    grid.submit(3)
    for _ in range(3):
        grid.end(grid.running("a")[0], wall_s=40.0)
    ran(grid, 40.0, 6)
    assert grid.job(grid.submit(3)).size == pytest.approx(120.0, rel=0.01)


def test_size_can_be_declared_unknown() -> None:
    grid = known()
    job = grid.job(grid.submit(3, "unknown"))  # type: ignore[arg-type]
    assert (job.size, job.size_source) == (None, SizeSource.UNKNOWN)
    assert job.predicted is not None, "policies may still use the prediction"


def test_missing_sizes_of_single_tasks_are_predicted() -> None:
    grid = known()
    mixed = JobSpec(command=["work"], tasks=[TaskSpec(size=100.0), TaskSpec(), TaskSpec()])
    job = grid.job(grid.submit_spec(mixed))
    assert (job.size, job.size_source) == (120.0, SizeSource.PREDICTED)


def test_runs_of_another_user_do_not_predict_sizes() -> None:
    grid = known()
    assert grid.scheduler.state.programs.keys() == {("user", "work", "work")}


def test_recorded_size_does_not_change_after_submission() -> None:
    grid = known()
    job = grid.submit(3)
    for _ in range(2):
        grid.end(grid.running("a")[0], wall_s=1000.0)
    assert grid.job(job).size == 30.0, "the guarantee uses the recorded size"
    left = measure.work_of(grid.scheduler.state.grid, grid.job(job), 3)
    assert left == pytest.approx(1000.0), "policies use the times of its finished tasks"


def test_size_is_stamped_when_a_chained_job_is_released() -> None:
    grid = Grid(policy="first-come")
    grid.join("a")
    first = grid.submit(2)
    chained = grid.submit(3, name="other", after=[first])
    ran_after = grid.submit(3, after=[first])
    assert grid.job(ran_after).size is None, "a job waiting for dependencies has no claim"
    for _ in range(2):
        grid.end(grid.running("a")[0], wall_s=10.0)
    assert grid.job(ran_after).size == pytest.approx(30.0, rel=0.01)
    assert grid.job(chained).size is None, "its program never ran"


def test_size_is_stamped_again_when_a_job_is_retried() -> None:
    grid = Grid(policy="first-come")
    grid.join("a")
    job = grid.submit(2)
    grid.end(grid.running("a")[0], wall_s=10.0)
    assert grid.job(job).size is None, "what is learned while it is in the grid gives it no claim"
    grid.step(JobCancelled(job))
    grid.report("a")
    grid.ask(grid.retry_event(job))
    assert (grid.job(job).size, grid.job(job).size_source) == (pytest.approx(20.0, rel=0.01), SizeSource.PREDICTED)


def test_given_size_survives_a_retry() -> None:
    grid = known()
    job = grid.submit(2, 7.0)
    grid.step(JobCancelled(job))
    grid.report("a")
    grid.ask(grid.retry_event(job))
    assert (grid.job(job).size, grid.job(job).size_source) == (7.0, SizeSource.GIVEN)


def test_job_of_predicted_size_holds_only_jobs_not_smaller() -> None:
    grid = known(10.0)
    grid.submit(3)
    larger, smaller = grid.submit(1, 31.0), grid.submit(1, 29.0)
    state = grid.scheduler.state
    assert state.index.is_held(state.jobs[larger])
    assert not state.index.is_held(state.jobs[smaller])


def test_programs_survive_a_restart_and_a_replay() -> None:
    grid = known()
    grid.restart()
    grid.join("a")
    assert grid.job(grid.submit(2)).size == 20.0
    assert grid.store.replayed().programs == grid.store.programs


def test_least_recently_used_program_is_forgotten() -> None:
    grid = Grid(policy="first-come", max_programs=2)
    grid.join("a")
    for name in "abc":
        ran(grid, 1.0, name=name)
        grid.now += 1
        if name == "b":
            grid.submit_spec(spec(1, name="a"))  # used for a prediction, though not run
            grid.end(grid.running("a")[0], wall_s=1.0)
            grid.now += 1
    assert [name for _, name, _ in grid.store.programs] == ["a", "c"]


# --- work of a run ----------------------------------------------------------------------------------------------


def shown(wall_s: float, cpu_s: float, spare_cpu: float, slots: int = 1, speed: float = 2.0) -> float:
    grid = Grid(policy="first-come")
    own = facts(4)
    grid.join(
        "a",
        Facts(own.os, own.arch, own.python, "0", "m", cpus=4, memory_bytes=own.memory_bytes, slots=4, speed=speed),
    )
    grid.submit(1, requires={"slots": slots})
    attempt = grid.scheduler.state.attempts[grid.running("a")[0]]
    attempt.wall_s, attempt.cpu_s = wall_s, cpu_s
    worker: Worker = grid.scheduler.state.workers["a"]
    worker.load = Load(4, spare_cpu)
    return measure.work_shown(worker, attempt)


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "spare_cpu", "slots", "work"),
    [
        (10.0, 10.0, 4.0, 1, 20.0),  # had a core of speed 2 to itself
        (10.0, 5.0, 1.0, 1, 10.0),  # owner active: had half a core
        (10.0, 5.0, 2.5, 1, 10.0),  # used nearly all of the spare core
        (10.0, 0.1, 4.0, 1, 20.0),  # a core was spare and it slept: it would sleep elsewhere too
        (10.0, 0.1, 0.4, 1, 20.0),  # did not even use the spare part
        (10.0, 20.0, 4.0, 2, 20.0),  # share of both its slots
        (10.0, 99.0, 4.0, 1, 20.0),  # used more than its slots: time taken from others does not make the task larger
        (10.0, 0.0, 0.0, 1, 20.0),  # not measured
        (10.0, 0.001, 0.0, 1, 20.0 / 16),  # no core was spare: unknown
    ],
)
def test_work_is_time_times_speed_times_core_share(
    wall_s: float, cpu_s: float, spare_cpu: float, slots: int, work: float
) -> None:
    assert shown(wall_s, cpu_s, spare_cpu, slots) == pytest.approx(work)
