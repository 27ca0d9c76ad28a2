"""The computers that are woken when wakes, limits, gangs or devices do not work out as one task per slot."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from loopline_master.core.events import WorkerLeft
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.wings.power.sleeper import Sleepers
from loopline_master.core.wings.power.wake_rules import lasting_reason
from loopline_shared.model import Facts
from loopline_shared.protocol.power import GoodBye, PowerOrders, SleepCause, SleepKind
from tests.scheduling.driver import START, Grid
from tests.scheduling.test_wakes import MINUTE, WAKE, asleep_grid, pc, put_to_sleep, waking
from tests.scheduling.units import limit, offering, submit

SUSPENDED = GoodBye(SleepKind.SUSPEND, SleepCause.GRID, WAKE)


class CountedCalls:
    """Counts the calls of functions in files whose paths contain ``part``."""

    def __init__(self, part: str) -> None:
        self._part, self.calls = part, 0

    def __enter__(self) -> CountedCalls:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        self.calls += event == "call" and self._part in frame.f_code.co_filename


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


def calls_of_a_report(workers: int) -> int:
    """Return the function calls of the wing in a step with one Report while ten computers are being woken."""
    grid = asleep_grid(*(f"s{number}" for number in range(10)), wake_at_once=10)
    for number in range(workers):
        grid.join(f"w{number:03}", pc())
    grid.submit(workers + 10, size=3600.0 * (workers + 10))
    assert len(waking(grid)) == 10
    grid.report("w001")
    with CountedCalls("wings/power") as counted:
        grid.report("w001")
    return counted.calls


def test_report_costs_the_same_beside_more_awake_workers() -> None:
    assert calls_of_a_report(20) == calls_of_a_report(80)


def test_packets_are_sent_by_another_worker_once_the_sender_has_left() -> None:
    grid = asleep_grid("s1")
    grid.join("a1", pc())
    grid.join("a2", pc())
    grid.submit(3, size=5400.0)
    assert waking(grid) == ["s1"]
    grid.step(WorkerLeft("a1", grid.agents["a1"].session))
    power = grid.report("a2").assigns["a2"].power
    assert power
    assert [one.worker for one in power.wake] == ["s1"]
    grid.join("a0", pc())
    assert not grid.report("a2").assigns["a2"].power
    grid.join("s1", pc())
    assert not grid.report("a0").assigns["a0"].power


def test_another_worker_sends_the_packets_after_a_failed_wake() -> None:
    grid = asleep_grid("s1")
    for name in ("a1", "a2"):
        grid.join(name, pc())
    grid.submit(3, size=3 * 36000.0)
    senders = []
    for _ in range(3):
        assert waking(grid) == ["s1"]
        senders.append([name for name in ("a1", "a2") if grid.report(name).assigns[name].power])
        for _ in range(30):
            grid.now += 10.0
            for name in ("a1", "a2"):
                grid.report(name)
    assert senders == [["a1"], ["a2"], ["a1"]]


def gang_pc() -> Facts:
    return replace(pc(), gangs=True)


def gang_grid(*names: str, **chosen: Any) -> Grid:
    """Return a grid where these computers, which run members of gangs, sleep."""
    grid = asleep_grid(**chosen)
    for name in names:
        grid.join(name, gang_pc())
        grid.report(name, good_bye=SUSPENDED)
    return grid


def test_gang_wakes_computers_while_the_awake_ones_are_busy() -> None:
    grid = gang_grid("a1", "a2", "a3")
    for name in ("b1", "b2"):
        grid.join(name, gang_pc())
    grid.submit(2, size=2 * 36000.0)
    grid.submit(1, size=1200.0, nodes=2, timeout_s=1000)
    assert waking(grid) == ["a1", "a2"]


def test_each_gang_of_a_job_wakes_the_computers_that_it_lacks() -> None:
    grid = gang_grid(*(f"a{number}" for number in range(7)), wake_at_once=7)
    grid.submit(4, size=4 * 2 * 3600.0, nodes=2, timeout_s=8000)
    assert waking(grid) == [f"a{number}" for number in range(6)], "the fourth gang would lack one"


def test_large_gang_starts_although_its_computers_are_woken_for_minutes() -> None:
    names = [f"a{number:02}" for number in range(28)]
    grid = gang_grid(*names)
    grid.submit(1, size=28 * 600.0, nodes=28, timeout_s=1000)
    came_at, sleep_after_s = dict[str, float](), dict[str, float | None]()
    while not any(grid.agents[name].members for name in names):
        grid.wait(10.0)
        for name, sleeper in grid.store.sleepers.items():
            if sleeper.waking_since is not None:
                grid.join(name, gang_pc(), reports=False)
                came_at[name] = grid.now
        for name in came_at:
            power = grid.report(name).assigns[name].power
            sleep_after_s[name] = power.sleep_after_s if power else None
        for name, after_s in sleep_after_s.items():
            assert after_s is None or grid.now - came_at[name] < after_s, f"{name} would sleep before the gang starts"
    assert grid.now - min(came_at.values()) > grid.settings.sleep_after_s
    grid.submit(1, size=600.0)
    assert grid.join("a00").assigns["a00"].power == PowerOrders(sleep_after_s=300.0), "the gang has begun"


def calls_of_a_plan(jobs: int) -> int:
    """Return the function calls for a plan with this many waiting jobs that no sleeper suits."""
    grid = asleep_grid("s1")
    for _ in range(jobs):
        submit(grid, 2, size=1200.0, requires={"labels": ["big"]})
    grid.now += 2.0
    with CountedCalls("loopline_master/core") as counted:
        grid.step()
    return counted.calls


def test_plan_costs_the_same_beside_more_jobs_that_no_sleeper_suits() -> None:
    few, many = (calls_of_a_plan(jobs) for jobs in (40, 80))  # more steps than are all checked
    assert many <= few + 5


@pytest.mark.parametrize("asked", [{"computer": 1}, {"fpga": 2}])
def test_task_that_fills_a_computer_wakes_one_for_itself(asked: dict[str, int]) -> None:
    grid = asleep_grid()
    for name in ("a1", "a2", "a3"):
        grid.join(name, replace(offering(4, fpga=3), link=pc().link))
        grid.report(name, good_bye=SUSPENDED)
    submit(grid, 2, size=2400.0, needs=asked)
    assert waking(grid) == ["a1", "a2"]


def test_tasks_with_devices_share_a_computer_as_its_units_allow() -> None:
    grid = asleep_grid()
    for name in ("a1", "a2", "a3"):
        grid.join(name, replace(offering(4, fpga=2), link=pc().link))
        grid.report(name, good_bye=SUSPENDED)
    submit(grid, 4, size=4800.0, needs={"fpga": 1})
    assert waking(grid) == ["a1", "a2"]


def test_device_of_an_awake_computer_counts_although_it_offers_fewer_slots() -> None:
    grid = asleep_grid()
    for name in ("a1", "b1"):
        grid.join(name, replace(offering(4, fpga=1), link=pc().link))
    grid.report("a1", good_bye=SUSPENDED)
    grid.report("b1", slots=3)
    submit(grid, 2, size=40.0, needs={"fpga": 1})
    assert waking(grid) == [], "the second task begins on b1 before a1 would be awake"


@pytest.mark.parametrize(
    ("asleep", "words"),
    [
        ({"by": SleepCause.OWNER}, "its owner put it to sleep less than 10 minutes ago"),
        ({"not_before": START + 600.0}, "its owner has paused tasks"),
        ({"hours": ((0, 1),)}, "its owner allows no tasks at this hour"),
        ({"hours": ((4330, 4340),)}, "its owner's hours end before it could sleep again"),
    ],
)
def test_explanation_of_a_sleeper_says_why_no_work_wakes_it(asleep: dict[str, Any], words: str) -> None:
    grid = asleep_grid()
    put_to_sleep(grid, "s1", **asleep)
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    found = explain_worker(grid.scheduler, "s1")
    assert found
    assert f"it is not woken for waiting tasks: {words}" in found.sentence


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"failed_wakes": 3}, "it did not come after 3 wakes: try `loopline wake s1`"),
        ({"unused_wakes": 3}, "it got no task after 3 wakes: try `loopline wake s1`"),
        ({"unused_wakes": 2}, "it got no task after its last wake, less than 20 minutes ago"),
        ({"draining": True}, "it is draining"),
    ],
)
def test_explanation_of_a_sleeper_uses_the_rules_of_the_plan(changed: dict[str, Any], words: str) -> None:
    grid = asleep_grid("s1")
    state = grid.scheduler.state
    state.own(Sleepers).of["s1"].last_wake_at = START - MINUTE
    for name, value in changed.items():
        worker, sleeper = state.workers["s1"], state.own(Sleepers).of["s1"]
        setattr(worker if hasattr(worker, name) else sleeper, name, value)
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    found = explain_worker(grid.scheduler, "s1")
    assert found
    assert f"it is not woken for waiting tasks: {words}" in found.sentence


def test_computer_in_quarantine_is_not_woken() -> None:
    state = asleep_grid("s1").scheduler.state
    state.workers["s1"].quarantined_until = START + 600.0
    assert lasting_reason(state, state.own(Sleepers).of["s1"]) == "it is in quarantine"
