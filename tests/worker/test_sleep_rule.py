"""Attempts at a worker's machine when its computer is about to sleep."""

from __future__ import annotations

from loopline_shared.model import Outcome
from loopline_worker.core.instructions import Kill
from loopline_worker.core.owner_policy import OwnerPreferences, Policy
from loopline_worker.core.sleep_rule import ComputerSleeps, SleepRule
from loopline_worker.core.transitions import State
from tests.worker.worker_machine import A, B, C, Driver, assigned, killed, run

ALWAYS = OwnerPreferences(Policy.ALWAYS, on_battery=True)


def running() -> Driver:
    """Return a machine that runs a fenced attempt and an ordinary one; another one waits."""
    machine = Driver(2, ALWAYS, 600.0, (SleepRule,))
    fenced = run(A)
    fenced.term_s = 30.0
    machine.happens(assigned(fenced, B, C))
    return machine


def test_fenced_attempt_is_given_back_before_a_suspend() -> None:
    machine = running()
    steps = machine.happens(ComputerSleeps(is_off=False))
    assert [one for one in steps.todo if isinstance(one, Kill)] == [
        Kill(A, Outcome.GIVEN_BACK, "its computer went to sleep")
    ]
    assert (machine.state(B), machine.state(C)) == (State.RUNNING, State.WAITING)


def test_all_attempts_are_given_back_when_the_computer_is_switched_off() -> None:
    assert killed(running().happens(ComputerSleeps(is_off=True))) == [A, B]
