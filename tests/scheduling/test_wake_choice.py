"""The computers that are woken when wakes, limits, gangs or devices do not work out as one task per slot."""

from __future__ import annotations

import pytest

from loopline_shared.protocol.power import GoodBye, SleepCause, SleepKind
from tests.scheduling.driver import Grid
from tests.scheduling.test_wakes import MINUTE, WAKE, asleep_grid, pc, waking
from tests.scheduling.units import limit, submit

SUSPENDED = GoodBye(SleepKind.SUSPEND, SleepCause.GRID, WAKE)


def idle_on(grid: Grid, name: str, seconds: float) -> None:
    """Let a connected computer report every 10 seconds that it offers no slots."""
    for _ in range(int(seconds / 10.0)):
        grid.now += 10.0
        grid.report(name, slots=0)


def come_and_go(grid: Grid, name: str) -> None:
    """Let a computer come, offer no slots, and sleep again."""
    grid.join(name, pc(), reports=False)
    idle_on(grid, name, 5 * MINUTE)
    grid.report(name, slots=0, good_bye=SUSPENDED)


def test_computer_that_gets_no_task_is_woken_three_times_with_pauses() -> None:
    grid = asleep_grid("a1")
    grid.submit(1, size=600.0)
    for pause_s in (0.0, 10 * MINUTE, 20 * MINUTE):
        if pause_s:
            grid.wait(pause_s - MINUTE)
            assert waking(grid) == [], "it has just been woken without a use"
            grid.wait(MINUTE)
        assert waking(grid) == ["a1"]
        come_and_go(grid, "a1")
    grid.wait(10 * 60 * MINUTE)
    assert waking(grid) == []


def test_task_on_a_woken_computer_ends_the_pauses_between_wakes() -> None:
    grid = asleep_grid("a1")
    grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    come_and_go(grid, "a1")
    assert grid.store.sleepers["a1"].unused_wakes == 1
    grid.wait(10 * MINUTE)
    assert waking(grid) == ["a1"]
    grid.join("a1", pc())
    assert grid.agents["a1"].running
    assert grid.store.sleepers["a1"].unused_wakes == 0


def test_no_other_computer_is_woken_while_the_first_prepares_to_offer_slots() -> None:
    grid = asleep_grid("a1", "a2")
    grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    grid.join("a1", pc(), reports=False)
    assert waking(grid) == []
    idle_on(grid, "a1", 4 * MINUTE)
    assert waking(grid) == []
    idle_on(grid, "a1", MINUTE)
    assert waking(grid) == ["a2"]


@pytest.mark.parametrize(("whose", "woken"), [("", ["a1", "a2"]), ("*", ["a1", "a2", "a3", "a4"])])
def test_jobs_that_share_a_limit_wake_no_more_computers_than_it_allows(whose: str, woken: list[str]) -> None:
    grid = asleep_grid("a1", "a2", "a3", "a4", "a5", wake_at_once=5)
    limit(grid, "lic", 2, whose)
    for owner in ("ann", "ann", "bob", "ann", "bob", "bob"):
        submit(grid, 2, owner, size=1200.0, needs={"lic": 1})
    assert waking(grid) == woken
