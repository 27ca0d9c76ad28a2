"""Which sleeping computers are woken, for any waiting work and any computers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.wings.power.wake_plan import ComputerSlots, WaitingWork, computers_to_wake
from tests.campaign import PATIENT

SUBNETS = ("10.0.0.0/24", "10.0.1.0/24")
SECONDS = st.floats(0.0, 1000.0)


@st.composite
def computers(draw: st.DrawFn, prefix: str, *, sleeps: bool) -> list[ComputerSlots]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        wake_s = draw(st.floats(1.0, 300.0)) if sleeps else 0.0
        slots = draw(st.integers(1, 4))
        free_in_s = [wake_s] * slots if sleeps else [draw(SECONDS) for _ in range(slots)]
        speed, subnet = draw(st.floats(0.1, 10.0)), draw(st.sampled_from(SUBNETS))
        found.append(ComputerSlots(f"{prefix}{number}", speed, free_in_s, wake_s, subnet))
    return found


@st.composite
def works(draw: st.DrawFn) -> list[WaitingWork]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        unsuitable = draw(st.sets(st.sampled_from([f"{kind}{n}" for kind in ("a", "s", "w") for n in range(6)])))
        tasks, slots = draw(st.integers(1, 500)), draw(st.integers(1, 3))
        found.append(
            WaitingWork(
                tasks, lambda name, no=unsuitable, slots=slots: slots * (name not in no), draw(st.floats(0.0, 1e4))
            )  # type: ignore[misc]
        )
    return found


def wake(
    waiting: Sequence[WaitingWork],
    awake: Sequence[ComputerSlots] = (),
    waking: Sequence[ComputerSlots] = (),
    asleep: Sequence[ComputerSlots] = (),
    allowed: int = 100,
) -> list[str]:
    return computers_to_wake(
        waiting, deepcopy(awake), deepcopy(waking), deepcopy(asleep), dict.fromkeys(SUBNETS, allowed)
    )


@PATIENT
@given(works(), computers("a", sleeps=False), computers("w", sleeps=True), computers("s", sleeps=True))
def test_only_suitable_sleepers_are_woken_each_once(
    waiting: list[WaitingWork], awake: list[ComputerSlots], waking: list[ComputerSlots], asleep: list[ComputerSlots]
) -> None:
    woken = wake(waiting, awake, waking, asleep)
    sleepers = {one.name: one for one in asleep}
    assert len(woken) == len(set(woken)) <= sum(work.tasks for work in waiting)
    for name in woken:
        assert any(work.suits(sleepers[name]) for work in waiting)


@PATIENT
@given(works(), computers("a", sleeps=False), computers("s", sleeps=True), st.integers(0, 3))
def test_each_subnet_wakes_as_many_as_allowed(
    waiting: list[WaitingWork], awake: list[ComputerSlots], asleep: list[ComputerSlots], allowed: int
) -> None:
    subnets = {one.name: one.subnet for one in asleep}
    woken = Counter(subnets[name] for name in wake(waiting, awake, (), asleep, allowed))
    assert all(count <= allowed for count in woken.values())


@PATIENT
@given(works(), computers("a", sleeps=False), computers("s", sleeps=True))
def test_planning_again_wakes_none_while_the_first_are_starting(
    waiting: list[WaitingWork], awake: list[ComputerSlots], asleep: list[ComputerSlots]
) -> None:
    first = wake(waiting, awake, (), asleep)
    order = {name: place for place, name in enumerate(first)}
    coming = sorted((one for one in asleep if one.name in order), key=lambda one: order[one.name])
    others = [one for one in asleep if one.name not in order]
    if len(waiting) == 1:
        assert not wake(waiting, awake, coming, others)


@PATIENT
@given(st.integers(1, 500), st.floats(0.01, 1e4), computers("s", sleeps=True))
def test_no_sleeper_rests_while_a_task_waits_longer_than_two_starts(
    tasks: int, work: float, asleep: list[ComputerSlots]
) -> None:
    woken = set(wake([any_work(tasks, work)], (), (), asleep))
    if len(woken) < len(asleep):
        begun = 0
        for one in asleep:
            if one.name in woken:
                begun += len(one.free_in_s) * (int(one.wake_s * one.speed / work) + 1)
        assert begun >= tasks


def asleep_pc(name: str, slots: int = 4, wake_s: float = 60.0, speed: float = 1.0) -> ComputerSlots:
    return ComputerSlots(name, speed, [wake_s] * slots, wake_s, SUBNETS[0])


def any_work(tasks: int, work: float, slots: int = 1) -> WaitingWork:
    return WaitingWork(tasks, lambda _: slots, work)


def test_awake_computer_that_begins_earlier_keeps_the_task() -> None:
    waiting, asleep = [any_work(1, 600.0)], [asleep_pc("s1")]
    assert wake(waiting, [ComputerSlots("a1", 1.0, [59.0])], (), asleep) == []
    assert wake(waiting, [ComputerSlots("a1", 1.0, [61.0])], (), asleep) == ["s1"]


def test_short_tasks_wake_one_computer_and_long_tasks_wake_many() -> None:
    asleep = [asleep_pc(f"s{number}") for number in range(10, 50)]
    assert len(wake([any_work(500, 0.1)], (), (), asleep)) == 1
    assert len(wake([any_work(500, 600.0)], (), (), asleep)) == 40
    assert len(wake([any_work(10, 600.0)], (), (), asleep)) == 3


def test_computer_that_finishes_soonest_is_woken() -> None:
    slow_start, fast = asleep_pc("s1", wake_s=120.0, speed=2.0), asleep_pc("s2", wake_s=30.0)
    assert wake([any_work(1, 60.0)], (), (), [slow_start, fast]) == ["s2"]
    assert wake([any_work(1, 600.0)], (), (), [slow_start, fast]) == ["s1"]


def test_wide_task_needs_a_computer_with_its_slots() -> None:
    asleep = [asleep_pc("s1", slots=2), asleep_pc("s2", slots=8)]
    assert wake([any_work(1, 60.0, slots=4)], (), (), asleep) == ["s2"]
