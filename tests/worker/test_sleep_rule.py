"""Attempts at a worker's machine when its computer is about to sleep."""

from __future__ import annotations

import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core.events import Followed
from loopline_worker.core.instructions import Kill
from loopline_worker.core.owner_policy import OwnerPreferences, Policy
from loopline_worker.core.sleep_rule import ComputerSleeps, ComputerWakes, SleepRule
from loopline_worker.core.transitions import State
from tests.worker.worker_machine import (
    A,
    B,
    C,
    Driver,
    assigned,
    killed,
    prefetched,
    retracts,
    run,
    started,
)

ALWAYS = OwnerPreferences(Policy.ALWAYS, on_battery=True)


def running() -> Driver:
    """Return a machine that runs a fenced attempt and an ordinary one; another one waits."""
    machine = Driver(2, ALWAYS, 600.0, (SleepRule,))
    machine.happens(assigned(fenced(A), B, C))
    return machine


def fenced(attempt: AttemptId) -> Run:
    order = run(attempt)
    order.term_s = 30.0
    return order


def test_fenced_attempt_is_given_back_before_a_suspend() -> None:
    machine = running()
    steps = machine.happens(ComputerSleeps(is_off=False))
    assert [one for one in steps.todo if isinstance(one, Kill)] == [
        Kill(A, Outcome.GIVEN_BACK, "its computer went to sleep")
    ]
    assert (machine.state(B), machine.state(C)) == (State.RUNNING, State.UNSENT)


def test_all_attempts_are_given_back_when_the_computer_is_switched_off() -> None:
    assert killed(running().happens(ComputerSleeps(is_off=True))) == [A, B]


@pytest.mark.parametrize("is_off", [False, True])
def test_nothing_starts_before_a_sleep(is_off: bool) -> None:
    machine = Driver(1, ALWAYS, 600.0, (SleepRule,))
    machine.happens(assigned(fenced(A), fenced(B)))
    machine.happens(ComputerSleeps(is_off))
    steps = [machine.ends(A), machine.happens(assigned(fenced(C)))]
    assert [started(one) for one in steps] == [[], []]
    assert {attempt: outcome for attempt, (outcome, _) in machine.outcomes().items()} == {
        A: Outcome.SUCCEEDED,
        B: Outcome.GIVEN_BACK,
        C: Outcome.GIVEN_BACK,
    }
    assert machine.slots_offered == 0


def test_prefetched_attempt_is_retracted_before_its_predecessor_is_killed() -> None:
    machine = Driver(1, ALWAYS, 600.0, (SleepRule,))
    assert prefetched(machine.happens(assigned(fenced(A), fenced(B)), room=1)) == [B]
    steps = machine.happens(ComputerSleeps(is_off=False))
    assert retracts(steps)
    assert isinstance(steps.todo[-1], Kill)
    assert killed(steps) == [A]
    assert started(machine.retracted(B)) == []
    assert machine.state(B) is State.UNSENT


def test_prefetched_attempt_that_began_before_the_retract_is_given_back() -> None:
    machine = Driver(1, ALWAYS, 600.0, (SleepRule,))
    machine.happens(assigned(fenced(A), fenced(B)), room=1)
    machine.happens(ComputerSleeps(is_off=False))
    assert killed(machine.happens(Followed(A, B))) == [B]


def test_attempts_start_again_when_the_computer_is_back() -> None:
    machine = running()
    machine.happens(ComputerSleeps(is_off=True))
    machine.ends(A, B)
    machine.happens(ComputerWakes())
    assert machine.slots_offered == 2
    assert started(machine.happens(assigned(AttemptId(1, 4, 1)))) == [AttemptId(1, 4, 1)]
