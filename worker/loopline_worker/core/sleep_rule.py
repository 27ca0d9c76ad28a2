"""The wing for the computer's sleep: attempts that others wait for are given back before it.

These are fenced attempts, which the master must be able to start elsewhere, and members of gangs, which would hold up
the other members. A computer that is switched off ends all attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_shared.model import Outcome
from loopline_shared.protocol.power import PowerOrders
from loopline_shared.protocol.worker_link import Assign
from loopline_worker.core.attempts import AttemptRecord
from loopline_worker.core.events import WingEvent
from loopline_worker.core.instructions import Instructions, WingInstruction
from loopline_worker.core.machine_wing import Handler, MachineWing


@dataclass(frozen=True, slots=True)
class ComputerSleeps(WingEvent):
    """The computer is about to be suspended or switched off."""

    is_off: bool


@dataclass(frozen=True, slots=True)
class FollowOrders(WingInstruction):
    """Carry out the master's orders about sleep."""

    orders: PowerOrders


class SleepRule(MachineWing):
    """Gives attempts back, which use up none of their task's ``max_attempts``."""

    reads = ("power",)

    def handlers(self) -> Mapping[type[WingEvent], Handler]:
        """Return the handler of ComputerSleeps."""
        return {ComputerSleeps: self._sleep}

    def assign(self, assign: Assign, now: float, steps: Instructions) -> None:
        """Pass on the master's orders."""
        if assign.power:
            steps.todo.append(FollowOrders(assign.power))

    def _sleep(self, event: ComputerSleeps, now: float, steps: Instructions) -> None:
        reason = "its computer was switched off" if event.is_off else "its computer went to sleep"
        for attempt in self.machine.attempts.oldest_first():
            if event.is_off or _is_awaited(attempt):
                steps.todo.append(self.machine.attempts.end(attempt, Outcome.GIVEN_BACK, reason))


def _is_awaited(attempt: AttemptRecord) -> bool:
    return attempt.run is not None and (attempt.run.term_s is not None or attempt.run.gang is not None)
