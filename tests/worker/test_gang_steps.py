"""Members of a gang take checkpoints of the same steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loopline_worker.checkpoints.gang_steps import GangSteps

STEPS = 2000
intervals = st.floats(1.0, 100.0)


def taken(interval_s: float, step_s: float, first: int) -> set[int]:
    """Return the steps that a member saves to the master, with steps of ``step_s``."""
    member = GangSteps()
    return {step for step in range(first, first + STEPS) if member.is_due(step, interval_s, step * step_s)}


@given(one_s=intervals, other_s=intervals, first=st.integers(0, 1000))
def test_members_with_different_intervals_take_common_steps(one_s: float, other_s: float, first: int) -> None:
    one, other = taken(one_s, 0.5, first), taken(other_s, 0.5, first)
    assert min(one, other, key=len) == one & other
    assert first in one
    assert len(one & other) > STEPS * 0.5 / max(one_s, other_s) / 2 - 1


def test_missed_step_is_due_again_while_it_is_the_newest_a_few_times() -> None:
    member = GangSteps()
    assert member.is_due(8, 1.0, 0.0)
    member.missed()
    tries = 1
    while member.is_due(8, 1.0, 0.1):
        tries += 1
        member.missed()
    assert tries == 5
    assert member.is_due(16, 8.0, 8.0)
    member.missed()
    assert not member.is_due(17, 8.0, 9.0), "the other members do not take it"
    assert not member.is_due(16, 8.0, 9.0), "it is not the newest any more"


def test_step_is_taken_once_and_none_without_a_name() -> None:
    member = GangSteps()
    assert not member.is_due(None, 1.0, 0.0)
    assert member.is_due(7, 1.0, 0.0)
    assert not member.is_due(7, 1.0, 5.0)
