"""Speeds of workers are learned quickly, only from the times of one program on different workers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from loopline_master.core.estimates import measure
from loopline_shared.spec import JobSpec, TaskSpec
from tests.scheduling.driver import Grid, facts

SPEEDS = {"a": 4.0, "b": 2.0, "c": 2.0, "d": 1.0}


def grid_of(speeds: dict[str, float] = SPEEDS, benchmark: float = 1.0) -> Grid:
    """All workers report the same benchmark, regardless of their real speeds."""
    grid = Grid(policy="first-come", lease_s=1e9, max_replicas=1)
    for name in speeds:
        grid.join(name, replace(facts(), speed=benchmark))
    return grid


def run(grid: Grid, work: float, each: int, speeds: dict[str, float] = SPEEDS) -> None:
    """Let each worker run ``each`` tasks of one program of this work, without sizes."""
    for _ in range(each):
        grid.submit(len(speeds))
        began = grid.now
        for name in sorted(speeds, key=lambda name: -speeds[name]):
            took = work / speeds[name]
            grid.now = began + took
            grid.end(grid.running(name)[0], wall_s=took, cpu_s=took)


def shown(grid: Grid) -> dict[str, float]:
    """Return measured speeds relative to their mean."""
    found = {name: measure.speed_of(worker) for name, worker in grid.scheduler.state.workers.items()}
    mean = sum(found.values()) / len(found)
    return {name: speed / mean for name, speed in found.items()}


def wanted(speeds: dict[str, float]) -> dict[str, float]:
    mean = sum(speeds.values()) / len(speeds)
    return {name: speed / mean for name, speed in speeds.items()}


@pytest.mark.parametrize(("work", "each"), [(0.5, 8), (60.0, 2), (1.0, 16)])
@pytest.mark.parametrize("benchmark", [1.0, 2.5])
def test_speeds_are_right_after_a_few_tasks(work: float, each: int, benchmark: float) -> None:
    grid = grid_of(benchmark=benchmark)
    run(grid, work, each)
    assert shown(grid) == pytest.approx(wanted(SPEEDS), rel=0.15)


def test_very_short_attempts_do_not_affect_speeds() -> None:
    grid = grid_of()
    run(grid, 0.09, 20)
    assert not any(worker.work_s for worker in grid.scheduler.state.workers.values())


def test_declared_sizes_do_not_affect_speeds() -> None:
    """Tasks of one second are declared as two hours, on one worker (as labels could arrange) or on all."""
    honest, liar = grid_of(), grid_of()
    for grid in (honest, liar):
        run(grid, 1.0, 8)
    for number in range(8):
        size = 7200.0 if number % 2 else 1.0
        for grid, said in ((honest, 1.0), (liar, size)):
            grid.submit_spec(JobSpec(command=["work"], tasks=[TaskSpec(size=said)] * 4))
            for name, speed in SPEEDS.items():
                grid.end(grid.running(name)[0], wall_s=1.0 / speed, cpu_s=1.0 / speed)
            grid.now += 2.0
    assert shown(liar) == pytest.approx(shown(honest), rel=0.01)
    liar.submit(4, 28_800.0)
    for name in SPEEDS:
        assert liar.scheduler.state.attempts[liar.running(name)[0]].expected_s < 2 * 7200.0
        liar.end(liar.running(name)[0], wall_s=1.0 / SPEEDS[name], cpu_s=1.0 / SPEEDS[name])
    other = liar.scheduler.state
    assert shown(liar) == pytest.approx(wanted(SPEEDS), rel=0.15)
    assert measure.speed_of(other.workers["d"]) <= 1.0, "no worker appears faster"


def test_different_tasks_of_a_program_are_compared_by_given_sizes() -> None:
    """Policy fair gives large tasks to fast workers; by times alone these workers would look slow."""
    grid = grid_of()
    chance = random.Random(1)
    for _ in range(16):
        sizes = [speed * chance.uniform(1.0, 40.0) for speed in SPEEDS.values()]
        grid.submit_spec(JobSpec(command=["work"], tasks=[TaskSpec(size=size) for size in sizes]))
        for name, speed in SPEEDS.items():
            took = sizes[grid.running(name)[0].task - 1] / speed
            grid.end(grid.running(name)[0], wall_s=took, cpu_s=took)
        grid.now += 60.0
    assert shown(grid) == pytest.approx(wanted(SPEEDS), rel=0.15)


def test_sleeping_tasks_do_not_affect_speeds() -> None:
    grid = grid_of()
    grid.submit(8)
    for name in [*SPEEDS] * 2:
        grid.end(grid.running(name)[0], wall_s=10.0 / SPEEDS[name], cpu_s=0.01)
    assert not any(worker.work_s for worker in grid.scheduler.state.workers.values())


def test_changed_speed_of_a_computer_is_learned_quickly() -> None:
    grid = grid_of()
    run(grid, 1.0, 40)
    slowed = SPEEDS | {"a": 1.0}
    run(grid, 1.0, 60, slowed)
    assert shown(grid) == pytest.approx(wanted(slowed), rel=0.25)


def test_wrong_units_of_sizes_affect_only_that_program() -> None:
    """Sizes in hours: the next job of the program is expected to take the time that these sizes really meant."""
    grid = grid_of({"a": 1.0, "b": 1.0})
    grid.submit(2, 2.0, name="in hours")
    for name in "ab":
        grid.end(grid.running(name)[0], wall_s=3600.0, cpu_s=3600.0)
    grid.submit(1, 1.0, name="in hours")
    grid.submit(1, 1.0, name="in seconds")
    state = grid.scheduler.state
    hours, seconds = (measure.work_of(state.grid, state.jobs[job], 1) for job in (2, 3))
    assert hours == pytest.approx(3600.0, rel=0.01)
    assert seconds == 1.0
