"""The owner policy as a pure function: number of slots and the reason, from terms and observations."""

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
    is_present,
)

cores = st.floats(0, 64)
slots = st.integers(0, 64)


@given(slots, cores, slots)
def test_slots_fit_into_the_spare_cores(before: int, spare: float, most: int) -> None:
    now = fit(before, spare, most)
    assert 0 <= now <= most
    assert now <= spare + KEEP
    assert now == most or now + 1 > spare + GROW  # and not fewer either


@given(slots, cores, cores, slots)
def test_more_spare_cpu_never_means_fewer_slots(before: int, one: float, other: float, most: int) -> None:
    assert fit(before, min(one, other), most) <= fit(before, max(one, other), most)


@given(slots, cores, st.lists(st.floats(-0.12, 0.12), max_size=20), slots)
def test_slots_do_not_oscillate_with_small_changes(now: int, spare: float, swings: list[float], most: int) -> None:
    """Changes smaller than the hysteresis cause at most one change of slots, in any order."""
    seen = [fit(now, spare, most)]
    for swing in swings:
        seen.append(fit(seen[-1], max(0.0, spare + swing), most))
    assert len({*seen}) <= 2
    assert sum(first != second for first, second in pairwise(seen)) <= 1


def test_fewer_cores_are_used_while_the_owner_works() -> None:
    seen, now = [], 4
    for spare in (4.0, 3.6, 3.4, 2.6, 2.4, 1.0, 0.2, 0.0, 0.7, 0.8, 1.7, 1.8, 3.0, 3.9):
        now = fit(now, spare, 4)
        seen.append(now)
    assert seen == [4, 4, 3, 3, 2, 1, 0, 0, 0, 1, 1, 2, 3, 4]


def test_slots_beyond_the_cores_share_cores() -> None:
    assert cores_per_slot(2.0, 8) == 0.25
    assert cores_per_slot(8.0, 2) == 1.0
    assert fit(0, 1.0, 8, 0.25) == 4


TERMS = OwnerPreferences(Policy.SPARE, idle_s=60, reserve_cores=1.0, reserve_memory_bytes=100)
AWAY = Signs(cores=4.0, spare_cpu=4.0, idle_s=3600.0, memory_available_bytes=1000)
HERE = replace(AWAY, idle_s=0.1)


def asked(signs: Signs, most: int = 4, before: int = 4, **preferences: Any) -> Decision:
    return decide(replace(TERMS, **preferences), signs, most, before)


def test_when_idle_offers_no_slots_while_in_use() -> None:
    assert asked(AWAY, policy=Policy.WHEN_IDLE) == Decision(4)
    assert asked(HERE, policy=Policy.WHEN_IDLE) == Decision(0, "somebody is using this computer")
    assert asked(replace(AWAY, idle_s=59.9), policy=Policy.WHEN_IDLE).slots == 0
    assert asked(replace(AWAY, idle_s=60.0), policy=Policy.WHEN_IDLE).slots == 4


def test_unknown_presence_counts_as_in_use() -> None:
    unknown = replace(AWAY, idle_s=None)
    assert is_present(TERMS, unknown)
    decision = asked(unknown, policy=Policy.WHEN_IDLE)
    assert decision.slots == 0
    assert "it is unknown whether" in decision.why
    assert asked(unknown).slots == 3  # one core is reserved for a possible owner


def test_spare_reserves_one_core_for_a_present_owner() -> None:
    assert asked(HERE) == Decision(3, "the owner's programs need the processor")
    assert asked(replace(HERE, spare_cpu=2.2)).slots == 1
    assert asked(replace(AWAY, spare_cpu=2.2)).slots == 2  # the owner is absent, but their program is running
    assert asked(replace(HERE, spare_cpu=0.0)).slots == 0


def test_load_of_other_programs_can_be_ignored() -> None:
    busy = replace(AWAY, spare_cpu=0.0)
    assert asked(busy, policy=Policy.WHEN_IDLE).slots == 0
    assert asked(busy, policy=Policy.WHEN_IDLE, yield_to_load=False) == Decision(4)
    assert asked(busy, policy=Policy.SPARE, yield_to_load=False).slots == 0


def test_always_ignores_presence_and_spare_cpu() -> None:
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
def test_some_conditions_stop_tasks_under_every_policy(policy: Policy, change: dict[str, Any], why: str) -> None:
    assert asked(replace(AWAY, **change), policy=policy) == Decision(0, why)


def test_tasks_run_on_battery_if_the_owner_permits() -> None:
    assert asked(replace(AWAY, on_battery=True), on_battery=True).slots == 4


@pytest.mark.parametrize("policy", Policy)
def test_pause_overrides_all_terms_without_grace(policy: Policy) -> None:
    decision = asked(replace(AWAY, paused="until 14:30", program="zoom"), policy=policy)
    assert decision == Decision(0, "paused by the owner until 14:30", at_once=True)


def test_low_memory_is_reported() -> None:
    decision = asked(replace(AWAY, memory_available_bytes=99))
    assert (decision.slots, decision.short_of_memory) == (4, True)
    assert "memory" in decision.why


def test_low_memory_is_reported_while_the_owner_is_present() -> None:
    """Frozen attempts keep their memory, so they must be given back then."""
    decision = asked(replace(HERE, memory_available_bytes=99), policy=Policy.WHEN_IDLE)
    assert (decision.slots, decision.short_of_memory) == (0, True)
    assert decision.why == "somebody is using this computer, and too little memory would be left to the owner"
    always = asked(replace(HERE, memory_available_bytes=99, program="zoom"), policy=Policy.ALWAYS)
    assert always == Decision(0, "zoom is running")


def test_administrators_file_ends_all_tasks_at_once() -> None:
    off = replace(AWAY, switched_off="/etc/loopline/off: exam week", paused="for good")
    for policy in Policy:
        assert asked(off, policy=policy) == Decision(0, "switched off by /etc/loopline/off: exam week", at_once=True)


def test_quiet_computer_uses_part_of_its_cores() -> None:
    assert asked(AWAY, max_share=0.5).slots == 2
    assert asked(AWAY, max_share=0.1).slots == 0
    assert asked(AWAY, policy=Policy.ALWAYS, max_share=0.75).slots == 3


def test_hot_computer_runs_no_task() -> None:
    assert asked(replace(AWAY, celsius=91.0), max_temperature_c=90.0).why == "the computer is hot"
    assert asked(replace(AWAY, celsius=89.0), max_temperature_c=90.0).slots == 4
    assert asked(AWAY, max_temperature_c=90.0).slots == 4, "no sensor"


def test_running_tasks_continue_on_a_metered_network() -> None:
    assert asked(replace(AWAY, network="metered")) == Decision(4, "metered", nothing_new=True)
    assert not asked(replace(AWAY, network="metered", program="zoom")).nothing_new, "no task runs in any case"


def test_tasks_yield_the_cores_that_others_wanted() -> None:
    assert asked(replace(AWAY, wanted_cores=3.0)).slots == 1
    assert asked(replace(AWAY, wanted_cores=4.0)).slots == 0
    assert asked(replace(HERE, wanted_cores=4.0), policy=Policy.ALWAYS).slots == 4


@pytest.mark.parametrize("policy", list(Policy))
def test_slots_shrink_with_the_cores_that_are_taken_away(policy: Policy) -> None:
    preferences = OwnerPreferences(policy, reserve_cores=0.0)
    half = Signs(4.0, 4.0, taken_cores=4.0, idle_s=1e6)
    assert decide(preferences, half, 8, 8) == Decision(4, "this worker may use only 4 of its 8 cores now")
    assert decide(preferences, replace(half, cores=0.5, spare_cpu=0.5, taken_cores=7.5), 8, 8).slots == 1
    assert decide(preferences, replace(half, cores=8.0, spare_cpu=8.0, taken_cores=0.0), 8, 4) == Decision(8)
