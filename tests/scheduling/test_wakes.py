"""Sleeping computers that are woken for waiting work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.events import JobCancelled, JobPaused, MasterStoodStill, WakeRequested, WorkerDrained
from loopline_master.core.explain.demand import demand_view
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Declined, Done
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.power.power_wing import Power
from loopline_master.core.wings.power.wakes import GIVE_UP_S, TEST_ALARM_S, WakeOrder
from loopline_shared.model import Facts
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts
from tests.scheduling.driver import Grid, facts
from tests.scheduling.units import limit, submit

SUBNET = "10.1.2.0/24"
WAKE = WakeFacts("eth0", "52:54:00:12:34:56", SUBNET, from_suspend=Armed.YES, can_suspend=True)
MINUTE = 60.0


def pc(slots: int = 1) -> Facts:
    return replace(facts(slots), link=HostLink(SUBNET, "10.1.2.1"))


def put_to_sleep(
    grid: Grid, *names: str, slots: int = 1, kind: SleepKind = SleepKind.SUSPEND,
    by: SleepCause = SleepCause.IDLE, **wake: Any,
) -> None:  # fmt: skip
    for name in names:
        grid.join(name, pc(slots))
        grid.report(name, good_bye=GoodBye(kind, by, replace(WAKE, **wake)))


def asleep_grid(*names: str, slots: int = 1, **chosen: Any) -> Grid:
    grid = Grid(policy="first-come", **{"max_replicas": 1} | chosen)
    put_to_sleep(grid, *names, slots=slots)
    return grid


def waking(grid: Grid) -> list[str]:
    """Return the computers that are being woken, once a plan is due."""
    grid.wait(2.0)
    return sorted(name for name, one in grid.store.sleepers.items() if one.waking_since is not None)


def test_waiting_work_wakes_as_many_computers_as_it_needs() -> None:
    grid = asleep_grid("a1", "a2", "a3")
    assert waking(grid) == []
    grid.submit(2, size=1200.0)
    assert waking(grid) == ["a1", "a2"]


def test_waiting_job_names_the_computers_that_are_woken_for_it() -> None:
    grid = asleep_grid("a1", "a2")
    job = grid.submit(1, size=600.0)
    waking(grid)
    found = explain_job(grid.scheduler, job)
    assert found
    assert "(asleep: a1, a2; 1 of them being woken)" in found.sentence


def test_demand_counts_tasks_for_computers_that_are_being_woken() -> None:
    grid = asleep_grid("a1", "a2")
    grid.submit(5, size=5 * 600.0)
    (line,) = demand_view(grid.scheduler.state).demands
    assert (line.tasks, line.coming) == (5, 0)
    assert waking(grid) == ["a1", "a2"]
    view = demand_view(grid.scheduler.state)
    assert (view.demands[0].tasks, view.demands[0].coming, view.slots) == (5, 2, 3)
    grid.join("a1")
    (line,) = demand_view(grid.scheduler.state).demands
    assert (line.tasks, line.coming) == (4, 1)


def test_drained_computer_that_an_operator_wakes_is_not_expected_to_run_tasks() -> None:
    grid = asleep_grid("a1", "a2")
    grid.ask(WorkerDrained("a1"))
    grid.ask(WakeRequested("a1"))
    grid.submit(1, size=600.0)
    assert demand_view(grid.scheduler.state).demands[0].coming == 0
    assert waking(grid) == ["a1", "a2"]
    assert demand_view(grid.scheduler.state).demands[0].coming == 1


def test_coming_tasks_of_several_jobs_fill_each_computer_once() -> None:
    grid = asleep_grid("a1", "a2", slots=2)
    for count in (1, 2, 5):
        grid.submit(count, size=count * 600.0)
    assert waking(grid) == ["a1", "a2"]
    (line,) = demand_view(grid.scheduler.state).demands
    assert (line.jobs, line.tasks, line.coming) == (3, 6, 4), "the last tasks of two jobs are held"


def test_tries_to_wake_a_computer_for_one_sleep_count_as_one_wake_without_a_task() -> None:
    grid = asleep_grid("a1")
    job = grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    grid.wait(GIVE_UP_S + 1.0)
    assert (waking(grid), grid.store.sleepers["a1"].failed_wakes) == (["a1"], 1)
    grid.ask(JobCancelled(job))
    grid.join("a1")
    assert grid.store.sleepers["a1"].unused_wakes == 1


def test_time_of_the_next_plan_survives_a_restart() -> None:
    grid = asleep_grid("a1")
    assert waking(grid) == []
    assert grid.scheduler.state.wings[Power].due_at() is None, "nothing waits"
    grid.restart()
    due_at = grid.scheduler.state.wings[Power].due_at()
    assert Scheduler(grid.store.snapshot()).state.wings[Power].due_at() == due_at
    grid.now += 2.0
    grid.step()
    assert Scheduler(grid.store.snapshot()).state.wings[Power].due_at() is None


def test_plan_that_wakes_no_computer_is_in_the_log() -> None:
    grid = asleep_grid("a1")
    grid.join("bee", pc())
    grid.submit(2, size=40.0)
    assert waking(grid) == []
    grid.now += 2.0
    grid.step()
    assert grid.scheduler.state.grid.wakes_planned_at == grid.now
    assert grid.store.replayed().grid.wakes_planned_at == grid.now


def test_at_most_four_of_a_subnet_are_woken_within_a_minute() -> None:
    grid = asleep_grid(*(f"a{number}" for number in range(6)))
    grid.submit(50, size=50 * 600.0)
    assert len(waking(grid)) == 4
    grid.wait(MINUTE)
    assert len(waking(grid)) == 6


def test_woken_computers_are_not_woken_again() -> None:
    grid = asleep_grid("a1", "a2")
    grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    since = grid.store.sleepers["a1"].waking_since
    grid.wait(MINUTE)
    assert (waking(grid), grid.store.sleepers["a1"].waking_since) == (["a1"], since)
    grid.join("a1")
    assert grid.store.sleepers["a1"].is_proven
    assert waking(grid) == []
    assert [one.job for one in grid.agents["a1"].running] == [1]


def test_awake_worker_that_begins_earlier_is_left_the_work() -> None:
    grid = asleep_grid("a1")
    grid.join("bee", pc())
    grid.submit(2, size=40.0)
    assert waking(grid) == []
    grid.submit(2, size=40.0)
    assert waking(grid) == ["a1"], "one of them would wait for three others"


def test_paused_or_limited_work_wakes_no_computer() -> None:
    grid = asleep_grid("a1", "a2", "a3")
    limit(grid, "lic", 1)
    submit(grid, 5, size=5 * 600.0, needs={"lic": 1})
    grid.step(JobPaused(grid.submit(5, size=5 * 600.0)))
    assert waking(grid) == ["a1"], "the licence allows one task"


def test_work_beyond_the_slots_of_a_user_wakes_no_computer() -> None:
    grid = asleep_grid("a1", "a2", "a3", user_slots=1, shares=True)
    grid.submit(5, size=5 * 600.0)
    assert waking(grid) == ["a1"]


def test_unsuitable_work_wakes_no_computer() -> None:
    grid = asleep_grid("a1")
    submit(grid, 1, requires={"labels": ["big"]})
    assert waking(grid) == []


@pytest.mark.parametrize(
    "wake",
    [
        {"is_allowed": False},
        {"obstacle": "its lid is closed"},
        {"can_suspend": False},
        {"from_suspend": Armed.UNKNOWN},
        {"hours": ((0, 1),)},
    ],
)
def test_computer_that_must_not_be_woken_stays_asleep(wake: dict[str, Any]) -> None:
    grid = Grid(policy="first-come")
    grid.now = 4 * 86400.0 + 120.0  # Monday, 00:02 UTC
    put_to_sleep(grid, "a1", **wake)
    grid.submit(1, size=600.0)
    assert waking(grid) == []


def test_computer_is_woken_once_its_hours_begin() -> None:
    grid = Grid(policy="first-come")
    grid.now = 4 * 86400.0
    put_to_sleep(grid, "a1", hours=((5, 600),))
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    grid.wait(5 * MINUTE)
    assert waking(grid) == ["a1"]


@pytest.mark.parametrize(("left_s", "woken"), [(335.0, ["a1"]), (325.0, [])])
def test_computer_is_not_woken_shortly_before_its_hours_end(left_s: float, woken: list[str]) -> None:
    grid = Grid(policy="first-come")  # sleep_after_s is 300 s, and it is assumed to take 30 s to wake
    grid.now = 4 * 86400.0 + 600 * MINUTE - left_s - 2.0
    put_to_sleep(grid, "a1", hours=((5, 600),))
    grid.submit(1, size=600.0)
    assert waking(grid) == woken


def test_computer_is_woken_once_its_owner_has_ended_a_pause() -> None:
    grid = Grid(policy="first-come")
    put_to_sleep(grid, "a1", not_before=grid.now + 3 * MINUTE)
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    grid.wait(3 * MINUTE)
    assert waking(grid) == ["a1"]


def test_computer_that_its_owner_put_to_sleep_is_left_alone_for_ten_minutes() -> None:
    grid = Grid(policy="first-come")
    put_to_sleep(grid, "a1", by=SleepCause.OWNER)
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    grid.wait(10 * MINUTE)
    grid.wait(MINUTE)
    assert waking(grid) == ["a1"]


def test_computer_that_failed_to_come_three_times_is_woken_on_request_only() -> None:
    grid = asleep_grid("a1")
    grid.submit(1, size=600.0)
    for failed in range(3):
        assert waking(grid) == ["a1"]
        assert grid.store.sleepers["a1"].failed_wakes == failed
        grid.wait(GIVE_UP_S)
    assert waking(grid) == []
    assert grid.ask(WakeRequested("a1")) == Done()
    assert waking(grid) == ["a1"]


@pytest.mark.parametrize("late_s", [5.0, 500.0])
def test_computer_that_comes_late_was_woken_by_the_grid(late_s: float) -> None:
    grid = asleep_grid("a1")
    job = grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    first = grid.now
    grid.step(JobCancelled(job))
    grid.wait(GIVE_UP_S)
    assert waking(grid) == []
    grid.wait(late_s)
    grid.join("a1")
    sleeper = grid.store.sleepers["a1"]
    assert (sleeper.woken_at, sleeper.took_s, sleeper.failed_wakes) == (grid.now, grid.now - first, 0)
    assert sleeper.is_proven


def test_computer_that_comes_long_after_its_wake_was_started_by_its_owner() -> None:
    grid = asleep_grid("a1")
    job = grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    grid.step(JobCancelled(job))
    grid.wait(GIVE_UP_S)
    grid.wait(15 * MINUTE)
    grid.join("a1")
    assert grid.store.sleepers["a1"].woken_at is None


@pytest.mark.parametrize("starts", [True, False], ids=["start", "pause"])
def test_wake_is_given_more_time_after_an_absence_of_the_master(starts: bool) -> None:
    grid = asleep_grid("a1")
    job = grid.submit(1, size=600.0)
    assert waking(grid) == ["a1"]
    grid.step(JobCancelled(job))
    grid.now += 30 * MINUTE
    if starts:
        grid.restart()
    else:
        grid.step(MasterStoodStill())
    grid.join("a1")
    sleeper = grid.store.sleepers["a1"]
    assert (sleeper.woken_at, sleeper.failed_wakes) == (grid.now, 0)
    assert sleeper.took_s == 0.0, "it is not known"


def test_tested_computer_that_is_woken_later_on_request_has_not_failed_again() -> None:
    grid = Grid()
    put_to_sleep(grid, "a1", by=SleepCause.TEST)
    grid.wait(15.0)
    grid.wait(60 * MINUTE)
    assert grid.ask(WakeRequested("a1")) == Done()
    grid.wait(MINUTE)
    grid.join("a1")
    sleeper = grid.store.sleepers["a1"]
    assert (sleeper.is_proven, sleeper.failed_wakes, sleeper.took_s) == (True, 0, MINUTE)


def test_awake_worker_of_the_subnet_sends_the_packets() -> None:
    grid = asleep_grid("a1")
    put_to_sleep(grid, "a2")
    grid.join("bee", pc())
    grid.submit(3, size=1800.0)
    grid.now += 2.0
    effects = grid.step()
    power = effects.assigns["bee"].power
    assert power
    assert [(one.worker, one.subnet) for one in power.wake] == [("a1", SUBNET), ("a2", SUBNET)]
    assert not effects.told(WakeOrder)


def test_master_wakes_where_no_worker_of_the_subnet_is_awake() -> None:
    grid = asleep_grid("a1")
    grid.join("bee", facts(1))
    grid.submit(2, size=1200.0)
    grid.now += 2.0
    effects = grid.step()
    assert effects.told(WakeOrder) == [WakeOrder("a1", WAKE.hardware_address, SUBNET, has_failed=False)]
    assert not effects.assigns


def test_gang_wakes_the_computers_that_it_lacks() -> None:
    grid = asleep_grid()
    for name in ("a1", "a2", "a3"):
        grid.join(name, replace(pc(), gangs=True))
        grid.report(name, good_bye=GoodBye(SleepKind.SUSPEND, SleepCause.IDLE, WAKE))
    large = grid.submit(1, size=600.0, nodes=4)
    assert waking(grid) == [], "there are too few"
    grid.step(JobCancelled(large))
    grid.submit(1, size=600.0, nodes=2)
    assert waking(grid) == ["a1", "a2"]


@pytest.mark.parametrize(("name", "status", "code"), [("bee", 409, "not_asleep"), ("nobody", 404, "no_such_worker")])
def test_request_to_wake_a_computer_that_is_awake_is_declined(name: str, status: int, code: str) -> None:
    grid = asleep_grid("a1")
    grid.join("bee", pc())
    reply = grid.ask(WakeRequested(name))
    assert isinstance(reply, Declined)
    assert (reply.status, reply.code) == (status, code)


def test_unarmed_computer_is_woken_after_a_request_has_succeeded() -> None:
    grid = Grid(policy="first-come")
    put_to_sleep(grid, "a1", from_suspend=Armed.NO)
    grid.submit(1, size=600.0)
    assert waking(grid) == []
    assert grid.ask(WakeRequested("a1")) == Done()
    put_to_sleep(grid, "a1", from_suspend=Armed.NO)
    assert waking(grid) == ["a1"]


def test_request_against_the_owner_is_declined() -> None:
    grid = Grid()
    put_to_sleep(grid, "a1", is_allowed=False)
    reply = grid.ask(WakeRequested("a1"))
    assert isinstance(reply, Declined)
    assert "its owner does not allow the grid to wake it" in reply.message


def test_no_computer_is_woken_if_the_operator_allows_none() -> None:
    grid = asleep_grid("a1", wake_at_once=0)
    grid.submit(1, size=600.0)
    assert waking(grid) == []


def test_computer_that_comes_before_its_alarm_can_be_woken() -> None:
    grid = Grid()
    grid.join("a1", pc())
    effects = grid.step(WakeRequested("a1", is_test=True))
    order = effects.assigns["a1"].power
    assert order
    assert order.test_alarm_s == TEST_ALARM_S
    assert not grid.report("a1").assigns["a1"].power, "it is ordered once"
    grid.report("a1", good_bye=GoodBye(SleepKind.SUSPEND, SleepCause.TEST, WAKE))
    grid.wait(14.0)
    assert grid.store.sleepers["a1"].waking_since is None
    grid.wait(1.0)
    assert grid.store.sleepers["a1"].waking_since is not None
    grid.wait(30.0)
    grid.join("a1")
    sleeper = grid.store.sleepers["a1"]
    assert (sleeper.is_proven, sleeper.took_s, sleeper.woken_at) == (True, 30.0, None)


def test_computer_that_its_alarm_wakes_has_failed_the_test() -> None:
    grid = Grid()
    put_to_sleep(grid, "a1", by=SleepCause.TEST)
    grid.wait(15.0)
    grid.wait(TEST_ALARM_S - 15.0)
    grid.join("a1")
    sleeper = grid.store.sleepers["a1"]
    assert (sleeper.is_proven, sleeper.failed_wakes) == (False, 1)


def test_tested_computer_that_does_not_come_is_woken_once() -> None:
    grid = Grid()
    put_to_sleep(grid, "a1", by=SleepCause.TEST)
    for _ in range(3):
        grid.wait(15.0)
        grid.wait(GIVE_UP_S)
    assert grid.store.sleepers["a1"].failed_wakes == 1
    assert grid.ask(WakeRequested("a1")) == Done()


@pytest.mark.parametrize("code", ["no_such_worker", "not_connected", "in_use", "has_tasks"])
def test_computer_in_use_is_not_tested(code: str) -> None:
    grid = Grid()
    if code == "not_connected":
        put_to_sleep(grid, "a1")
    elif code != "no_such_worker":
        grid.join("a1", pc())
        grid.report("a1", in_use=code == "in_use")
    if code == "has_tasks":
        grid.submit(1, size=600.0)
    reply = grid.ask(WakeRequested("a1", is_test=True))
    assert isinstance(reply, Declined)
    assert reply.code == code


def test_computer_whose_owner_says_no_is_not_tested() -> None:
    grid = Grid()
    put_to_sleep(grid, "a1", is_allowed=False)
    grid.join("a1", pc())
    reply = grid.ask(WakeRequested("a1", is_test=True))
    assert isinstance(reply, Declined)
    assert "its owner does not allow the grid to wake it" in reply.message


@pytest.mark.parametrize("wake", [None, replace(WAKE, is_allowed=False)], ids=["no card", "forbidden"])
def test_tested_computer_that_must_not_be_woken_is_left_to_its_alarm(wake: WakeFacts | None) -> None:
    grid = Grid()
    grid.join("a1", pc())
    grid.report("a1", good_bye=GoodBye(SleepKind.SUSPEND, SleepCause.TEST, wake))
    grid.wait(15.0)
    assert grid.store.sleepers["a1"].waking_since is None
