"""The owner's terms against what is seen: how many slots, and why no more. Pure."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_worker.core.owner_policy import (
    GROW,
    KEEP,
    Decision,
    OwnerPreferences,
    Policy,
    Signs,
    cores_per_slot,
    decide,
    fit,
    is_there,
)

cores = st.floats(0, 64)
slots = st.integers(0, 64)


@given(slots, cores, slots)
def test_slots_are_never_more_than_the_spare_cores_carry(before: int, spare: float, most: int) -> None:
    now = fit(before, spare, most)
    assert 0 <= now <= most
    assert now <= spare + KEEP
    assert now == most or now + 1 > spare + GROW  # nor fewer


@given(slots, cores, cores, slots)
def test_more_spare_cpu_never_means_fewer_slots(before: int, one: float, other: float, most: int) -> None:
    assert fit(before, min(one, other), most) <= fit(before, max(one, other), most)


@given(slots, cores, st.lists(st.floats(-0.12, 0.12), max_size=20), slots)
def test_slots_do_not_come_and_go_with_small_swings(now: int, spare: float, swings: list[float], most: int) -> None:
    """Whatever the order of swings narrower than the gap between keeping and growing: one change at most."""
    seen = [fit(now, spare, most)]
    for swing in swings:
        seen.append(fit(seen[-1], max(0.0, spare + swing), most))
    assert len({*seen}) <= 2
    assert sum(first != second for first, second in pairwise(seen)) <= 1


def test_fewer_cores_while_the_owner_works_and_all_of_them_afterwards() -> None:
    seen, now = [], 4
    for spare in (4.0, 3.6, 3.4, 2.6, 2.4, 1.0, 0.2, 0.0, 0.7, 0.8, 1.7, 1.8, 3.0, 3.9):
        now = fit(now, spare, 4)
        seen.append(now)
    assert seen == [4, 4, 3, 3, 2, 1, 0, 0, 0, 1, 1, 2, 3, 4]


def test_where_more_slots_than_cores_are_wanted_each_is_a_part_of_one() -> None:
    assert cores_per_slot(2.0, 8) == 0.25
    assert cores_per_slot(8.0, 2) == 1.0
    assert fit(0, 1.0, 8, 0.25) == 4


TERMS = OwnerPreferences(Policy.SPARE, idle_s=60, leave_cores=1.0, leave_memory_bytes=100)
AWAY = Signs(cores=4.0, spare_cpu=4.0, idle_s=3600.0, memory_available_bytes=1000)
HERE = replace(AWAY, idle_s=0.1)


def asked(signs: Signs, most: int = 4, before: int = 4, **preferences: Any) -> Decision:
    return decide(replace(TERMS, **preferences), signs, most, before)


def test_when_idle_nothing_runs_while_somebody_is_there() -> None:
    assert asked(AWAY, policy=Policy.WHEN_IDLE) == Decision(4)
    assert asked(HERE, policy=Policy.WHEN_IDLE) == Decision(0, "somebody is using this computer")
    assert asked(replace(AWAY, idle_s=59.9), policy=Policy.WHEN_IDLE).slots == 0
    assert asked(replace(AWAY, idle_s=60.0), policy=Policy.WHEN_IDLE).slots == 4


def test_where_nobody_can_tell_it_is_in_use() -> None:
    unknown = replace(AWAY, idle_s=None)
    assert is_there(TERMS, unknown)
    decision = asked(unknown, policy=Policy.WHEN_IDLE)
    assert decision.slots == 0
    assert "nobody can tell" in decision.why
    assert asked(unknown).slots == 3  # one core is left to whoever may be there


def test_spare_leaves_a_core_to_who_is_there_and_all_the_rest_is_lent() -> None:
    assert asked(HERE) == Decision(3, "the owner's programs need the processor")
    assert asked(replace(HERE, spare_cpu=2.2)).slots == 1
    assert asked(replace(AWAY, spare_cpu=2.2)).slots == 2  # nobody is there, but a program of theirs is at work
    assert asked(replace(HERE, spare_cpu=0.0)).slots == 0


def test_other_programs_may_be_none_of_its_concern() -> None:
    busy = replace(AWAY, spare_cpu=0.0)
    assert asked(busy, policy=Policy.WHEN_IDLE).slots == 0
    assert asked(busy, policy=Policy.WHEN_IDLE, heed_load=False) == Decision(4)
    assert asked(busy, policy=Policy.SPARE, heed_load=False).slots == 0


def test_always_asks_neither_who_is_there_nor_what_is_spare() -> None:
    assert asked(replace(HERE, spare_cpu=0.0, memory_available_bytes=0), policy=Policy.ALWAYS) == Decision(4)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"program": "zoom"}, "zoom is running"),
        ({"is_time": False}, "outside the hours that the owner has set"),
        ({"on_battery": True}, "running on battery"),
    ],
)
def test_whatever_the_policy_some_things_mean_not_now(policy: Policy, change: dict[str, Any], why: str) -> None:
    assert asked(replace(AWAY, **change), policy=policy) == Decision(0, why)


def test_on_battery_if_the_owner_says_so() -> None:
    assert asked(replace(AWAY, on_battery=True), on_battery=True).slots == 4


@pytest.mark.parametrize("policy", Policy)
def test_a_pause_is_above_all_and_gives_no_grace(policy: Policy) -> None:
    decision = asked(replace(AWAY, paused="until 14:30", program="zoom"), policy=policy)
    assert decision == Decision(0, "paused by the owner until 14:30", at_once=True)


def test_too_little_memory_is_said() -> None:
    decision = asked(replace(AWAY, memory_available_bytes=99))
    assert (decision.slots, decision.short_of_memory) == (4, True)
    assert "memory" in decision.why


def test_too_little_memory_is_seen_while_the_owner_is_there_too() -> None:
    """What stands still holds its memory: it has to go, most of all then."""
    decision = asked(replace(HERE, memory_available_bytes=99), policy=Policy.WHEN_IDLE)
    assert (decision.slots, decision.short_of_memory) == (0, True)
    assert decision.why == "somebody is using this computer, and too little memory would be left to the owner"
    always = asked(replace(HERE, memory_available_bytes=99, program="zoom"), policy=Policy.ALWAYS)
    assert always == Decision(0, "zoom is running")


def test_a_quiet_computer_uses_a_part_of_its_cores() -> None:
    assert asked(AWAY, most_share=0.5).slots == 2
    assert asked(AWAY, most_share=0.1).slots == 0
    assert asked(AWAY, policy=Policy.ALWAYS, most_share=0.75).slots == 3


def test_a_hot_computer_runs_nothing() -> None:
    assert asked(replace(AWAY, celsius=91.0), most_celsius=90.0).why == "the computer is hot"
    assert asked(replace(AWAY, celsius=89.0), most_celsius=90.0).slots == 4
    assert asked(AWAY, most_celsius=90.0).slots == 4, "no sensor"


def test_without_the_network_what_runs_goes_on_and_nothing_new_starts() -> None:
    assert asked(replace(AWAY, network="metered")) == Decision(4, "metered", nothing_new=True)
    assert not asked(replace(AWAY, network="metered", program="zoom")).nothing_new, "nothing runs anyhow"


def test_tasks_make_way_for_what_others_were_seen_to_want() -> None:
    assert asked(replace(AWAY, wanted_cores=3.0)).slots == 1
    assert asked(replace(AWAY, wanted_cores=4.0)).slots == 0
    assert asked(replace(HERE, wanted_cores=4.0), policy=Policy.ALWAYS).slots == 4
