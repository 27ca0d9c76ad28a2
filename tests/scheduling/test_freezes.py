"""Freezes of attempts, as the timeline shows them."""

from __future__ import annotations

from loopline_master.core.estimates import course, measure
from loopline_master.core.kernel.entities import MAX_FREEZES
from loopline_shared.model import AttemptId, Outcome
from tests.scheduling.driver import START, Grid


def test_freezes_have_a_beginning_and_an_end() -> None:
    grid = Grid()
    grid.join("a")
    grid.submit(1)
    for at, frozen in ((1.0, True), (2.0, True), (5.0, False), (6.0, False), (7.0, True)):
        grid.now = START + at
        grid.report("a", frozen=frozen)
    assert grid.attempt(1).freezes == ((START + 1, START + 5), (START + 7, None))
    grid.now = START + 9
    grid.end(grid.running("a")[0])
    assert grid.attempt(1).freezes[-1] == (START + 7, START + 9), "the end of the attempt ends its freeze"


def test_freeze_ends_when_its_attempt_is_lost_or_given_back() -> None:
    grid = Grid(lease_s=30.0)
    for name in ("a", "b"):
        grid.join(name)
    grid.submit(2)
    for name in ("a", "b"):
        grid.report(name, frozen=True)
    grid.now = START + 3
    given_back = grid.running("b")[0]
    grid.end(given_back, Outcome.GIVEN_BACK)
    grid.wait(40.0)
    lost = grid.attempt(1, 1)
    assert lost.state == "lost"
    assert lost.freezes == ((START, START + 43),)
    assert grid.store.attempts[given_back].freezes == ((START, START + 3),)


def test_freeze_continues_across_a_restart() -> None:
    grid = Grid()
    grid.join("a")
    grid.submit(1)
    grid.report("a", frozen=True)
    grid.restart()
    grid.now = START + 8
    grid.join("a", reports=False)
    grid.report("a", frozen=False)
    assert grid.attempt(1).freezes == ((START, START + 8),)


def test_only_the_latest_freezes_are_kept() -> None:
    grid = Grid()
    grid.join("a")
    grid.submit(1)
    for turn in range(2 * MAX_FREEZES + 4):
        grid.now = START + turn
        grid.report("a", frozen=turn % 2 == 0)
    freezes = grid.attempt(1).freezes
    assert len(freezes) == MAX_FREEZES
    assert freezes[0] == (START + 4, START + 5)


def test_frozen_time_makes_no_task_late() -> None:
    grid = Grid(max_replicas=1)
    grid.join("a")
    grid.submit(1, size=60.0)
    grid.report("a", frozen=True)
    grid.now += 500.0
    grid.report("a")
    state = grid.scheduler.state
    attempt, job, worker = state.attempts[AttemptId(1, 1, 1)], state.jobs[1], state.workers["a"]
    assert measure.left_of(state.grid, job, worker, attempt) == 60.0
    assert measure.late_from(state.grid, job, worker, attempt, 0.0) == grid.now + 60.0
    assert course.under_way_of(state, {}) == {1: [(0.0, 0.0, 1)]}


def test_time_after_the_last_report_of_a_disconnected_worker_is_not_counted() -> None:
    grid = Grid(lease_s=1e6)
    grid.join("a")
    grid.submit(1, size=60.0)
    grid.report("a")
    grid.now += 20.0
    grid.report("a")
    grid.leave("a")
    grid.wait(500.0)
    assert course.under_way_of(grid.scheduler.state, {}) == {1: [(0.0, 20.0, 1)]}
