"""Tasks that take their workers down: counted apart from failures, and failed after the third time."""

from __future__ import annotations

import pytest

from loopline_master.core.explain.explain_job import explain_task
from loopline_shared.model import AttemptId, Outcome, TaskId
from tests.scheduling.driver import Grid, facts, result

JOB = TaskId(1, 1)
AGAIN = "its worker's agent had to be started again"
SAID = "took its worker or its sandbox down 3 times"


def takes_down(grid: Grid, name: str, *, slots: int | None = None) -> None:
    """The agent dies while it runs the task, and restarts; then it offers ``slots``."""
    (attempt,) = (attempt for attempt in grid.running(name) if attempt.task_id == JOB)
    grid.report(name, result(attempt, Outcome.GIVEN_BACK, reason=AGAIN, took_down=True), slots=slots)


def grid_of(*names: str, **chosen: object) -> Grid:
    grid = Grid(**chosen)
    for name in names:
        grid.join(name)
    grid.submit(1, max_replicas=1)
    return grid


def test_task_fails_when_it_took_workers_down_three_times() -> None:
    grid = grid_of("a", "b")
    takes_down(grid, "a", slots=0)
    takes_down(grid, "b", slots=0)
    assert grid.task(1).state == "queued", "twice is not enough"
    grid.report("a")
    takes_down(grid, "a")
    task = grid.task(1)
    assert (task.state, task.verdict, task.failures, grid.job(1).state) == ("failed", SAID, 0, "failed")


def test_task_fails_when_it_took_the_only_worker_down_three_times() -> None:
    grid = grid_of("a")
    for _ in range(3):
        assert grid.task(1).is_open
        takes_down(grid, "a")
    assert (grid.task(1).state, grid.task(1).verdict) == ("failed", SAID)


def test_task_does_not_fail_while_another_worker_could_run_it() -> None:
    """The fault may be the worker's."""
    grid = grid_of("a", "b")
    grid.report("b", slots=0)
    for _ in range(4):
        takes_down(grid, "a")
    assert grid.task(1).is_open
    takes_down(grid, "a", slots=0)
    grid.report("b")
    takes_down(grid, "b")
    assert grid.task(1).state == "failed"


@pytest.mark.parametrize("policy", ["round-robin", "fair", "turnaround"])
def test_task_that_took_its_worker_down_prefers_another_free_worker(policy: str) -> None:
    """Its worker is back at once, and asks for work in the same step."""
    grid = Grid(policy=policy)
    for name in ("a", "b"):
        grid.join(name)
    grid.submit(1, max_replicas=1)
    first, other = ("a", "b") if grid.running("a") else ("b", "a")
    takes_down(grid, first)
    assert (grid.running(first), grid.running(other)) == ([], [AttemptId(1, 1, 2)])
    takes_down(grid, other)
    assert grid.task(1).state == "running", "both have run it, so either may run it again"


def test_task_returns_to_its_worker_when_the_other_one_is_busy() -> None:
    grid = grid_of("a", "b")
    takes_down(grid, "a")
    grid.submit(1, max_replicas=1)
    takes_down(grid, "b")
    assert grid.running("b") == [AttemptId(1, 1, 3)]


def test_worker_that_cannot_run_the_task_does_not_count_as_another() -> None:
    grid = Grid()
    grid.join("a", facts(labels=["gpu"]))
    grid.join("b")
    grid.submit(1, requires={"labels": ["gpu"]})
    for _ in range(3):
        takes_down(grid, "a")
    assert grid.task(1).state == "failed"


@pytest.mark.parametrize("reason", ["the worker was stopped", AGAIN])
def test_attempt_given_back_for_other_reasons_does_not_count(reason: str) -> None:
    """An operator stopped the worker, or the computer was switched off: the task is not the cause."""
    grid = grid_of("a")
    for _ in range(5):
        grid.end(grid.running("a")[0], Outcome.GIVEN_BACK, reason=reason)
    assert grid.task(1).is_open


def test_count_survives_a_restart_of_the_master() -> None:
    grid = grid_of("a")
    for _ in range(2):
        takes_down(grid, "a")
    grid.restart()
    grid.join("a")
    takes_down(grid, "a")
    assert grid.task(1).verdict == SAID


def test_late_result_still_counts() -> None:
    grid = grid_of("a")
    for _ in range(2):
        takes_down(grid, "a")
    grid.end(grid.running("a")[0])
    assert (grid.task(1).state, grid.task(1).verdict) == ("succeeded", "")


def test_retry_resets_the_count() -> None:
    grid = grid_of("a")
    for _ in range(3):
        takes_down(grid, "a")
    grid.step(grid.retry_event(1))
    assert grid.task(1).took_down == ()
    assert grid.running("a") == [AttemptId(1, 1, 4)]


def test_task_that_took_workers_down_is_no_longer_replicated() -> None:
    """Live attempts may still bring the result, but no further worker is put at risk."""
    grid = Grid(max_replicas=3)
    for name in "abc":
        grid.join(name)
    grid.submit(1)
    assert len(grid.attempts_of(JOB)) == 3
    for _ in range(2):
        takes_down(grid, "a")
    takes_down(grid, "b")
    assert [len(grid.running(name)) for name in "abc"] == [1, 0, 1]
    takes_down(grid, "a")
    assert [len(grid.running(name)) for name in "abc"] == [0, 0, 1]
    grid.end(grid.running("c")[0])
    assert grid.task(1).state == "succeeded"


def test_explain_says_that_the_task_took_workers_down() -> None:
    grid = grid_of("a")
    takes_down(grid, "a")
    running = explain_task(grid.scheduler, JOB)
    assert running is not None
    assert running.sentence == "running on a; it took its worker or its sandbox down 1 time before"
    grid.report("a", result(grid.running("a")[0], Outcome.GIVEN_BACK), slots=0)
    queued = explain_task(grid.scheduler, JOB)
    assert queued is not None
    assert queued.sentence.startswith("it took its worker or its sandbox down 1 time; ")
