"""The wing for the computer's sleep: attempts that others wait for are given back before it.

These are fenced attempts, which the master must be able to start elsewhere, and members of gangs, which would hold up
the other members. A computer that is switched off ends all attempts. Until the computer is back, nothing starts: the
attempts that wait are given back, and so is an awaited attempt that began before it could be retracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_shared.model import Outcome
from loopline_shared.protocol.power import PowerOrders
from loopline_shared.protocol.worker_link import Assign
from loopline_worker.core.attempts import AttemptRecord
from loopline_worker.core.events import WingEvent
from loopline_worker.core.instructions import Instructions, Urgency, WingInstruction
from loopline_worker.core.machine_wing import Handler, MachineView, MachineWing


@dataclass(frozen=True, slots=True)
class ComputerSleeps(WingEvent):
    """The computer is about to be suspended or switched off."""

    is_off: bool


@dataclass(frozen=True, slots=True)
class ComputerWakes(WingEvent):
    """The computer is awake again, or its sleep was called off."""


@dataclass(frozen=True, slots=True)
class FollowOrders(WingInstruction):
    """Carry out the master's orders about sleep."""

    orders: PowerOrders


class SleepRule(MachineWing):
    """Gives attempts back, which use up none of their task's ``max_attempts``."""

    reads = ("power",)

    def __init__(self, machine: MachineView) -> None:
        super().__init__(machine)
        self._ends_all = False

    def handlers(self) -> Mapping[type[WingEvent], Handler]:
        """Return the handlers of ComputerSleeps and ComputerWakes."""
        return {ComputerSleeps: self._sleep, ComputerWakes: self._return}

    def assign(self, assign: Assign, now: float, steps: Instructions) -> None:
        """Pass on the master's orders."""
        if assign.power:
            steps.todo.append(FollowOrders(assign.power))

    def finish_step(self, allowed: int, pause_reason: str, now: float, steps: Instructions) -> None:
        """End the attempts that must not sleep with the computer."""
        reason = self.machine.wing_obstacle
        for attempt in self.machine.attempts.oldest_first() if reason else ():
            if self._ends_all or _is_awaited(attempt):
                steps.todo.append(self.machine.attempts.end(attempt, Outcome.GIVEN_BACK, reason))

    def _sleep(self, event: ComputerSleeps, now: float, steps: Instructions) -> None:
        self._ends_all = event.is_off
        self.machine.wing_obstacle = "its computer was switched off" if event.is_off else "its computer went to sleep"

    def _return(self, event: ComputerWakes, now: float, steps: Instructions) -> None:
        self.machine.wing_obstacle = ""
        steps.report = Urgency.NOW


def _is_awaited(attempt: AttemptRecord) -> bool:
    return attempt.run is not None and (attempt.run.term_s is not None or attempt.run.gang is not None)
