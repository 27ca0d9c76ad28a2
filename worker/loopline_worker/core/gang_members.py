"""The wing for gangs: members are prepared, started at the master's word, frozen and thawed with the others.

A member stands down before its start if it cannot have its slots at once, if the owner is back, or if the master was
silent for too long: it is preempted, and nothing is lost. The master decides everything else, because only the master
knows the state of the other members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.gang_messages import Member, MemberOrder, Word
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core.attempts import AttemptRecord
from loopline_worker.core.events import WingEvent
from loopline_worker.core.instructions import Freeze, Instructions, Urgency, WingInstruction
from loopline_worker.core.machine_wing import DraftReport, Handler, MachineView, MachineWing
from loopline_worker.core.transitions import State


@dataclass(frozen=True, slots=True)
class PreparedMember(WingEvent):
    """A gang's member is ready to start. ``port``: one of this computer, reserved until the start; 0: none."""

    attempt: AttemptId
    port: int


@dataclass(frozen=True, slots=True)
class StartMember(WingInstruction):
    """Start a prepared member after ``delay_s``."""

    run: Run
    delay_s: float
    rendezvous: str


class GangMembers(MachineWing):
    """Obeys the master's words. Its state: when the last came, and which members are ready."""

    starts = ("gang",)
    reads = ("words",)

    def __init__(self, machine: MachineView) -> None:
        super().__init__(machine)
        self._word_at = 0.0  # when the master last sent an Assign, by the clock of ``now``
        self._ready: dict[AttemptId, tuple[int, float]] = {}  # port, and since when

    def handlers(self) -> Mapping[type[WingEvent], Handler]:
        """Return the handler of PreparedMember."""
        return {PreparedMember: self._prepared}

    def assign(self, assign: Assign, now: float, steps: Instructions) -> None:
        """Obey an Assign's words."""
        self._word_at = now
        for word in assign.words:
            self.machine.owes_report = True
            attempt = self.machine.attempts.get(word.attempt)
            if attempt is not None:
                self._obey(attempt, word, now, steps)

    def finish_step(self, allowed: int, pause_reason: str, now: float, steps: Instructions) -> None:
        """Preempt members that cannot have their slots, must leave them, or have waited for too long."""
        attempts = self.machine.attempts
        over = attempts.taken - allowed
        for attempt in reversed(self._members()):
            reason = self._why_not(attempt, over, pause_reason, now)
            if reason and attempt.state is State.WAITING:
                attempts.drop(attempt, Outcome.GIVEN_BACK, reason)
            elif reason:
                over -= attempt.slots
                steps.todo.append(attempts.end(attempt, Outcome.GIVEN_BACK, reason))
        self._ready = {attempt: ready for attempt, ready in self._ready.items() if attempt in attempts.by_wings}

    def report(self, draft: DraftReport) -> None:
        """Add the members that have not begun."""
        draft.members = [
            Member(
                attempt.id, is_ready=attempt.state is State.PREPARED, port=self._ready.get(attempt.id, (0, 0.0))[0]
            )
            for attempt in self._members()
            if attempt.id not in self.machine.attempts.disowned
        ]

    def _members(self) -> list[AttemptRecord]:
        return [one for one in self.machine.attempts.by_wings.values() if one.run and one.run.gang]

    def _prepared(self, event: PreparedMember, now: float, steps: Instructions) -> None:
        """Note that a member is ready to start, unless it was cancelled since then."""
        attempt = self.machine.attempts.preparing.get(event.attempt)
        if attempt is not None:
            self._ready[event.attempt] = event.port, now
            self.machine.attempts.move(attempt, State.PREPARED)
            steps.report = Urgency.NOW

    def _obey(self, attempt: AttemptRecord, word: Word, now: float, steps: Instructions) -> None:
        match word.order, attempt.state:
            case MemberOrder.START, State.PREPARED:
                self.machine.attempts.move(attempt, State.RUNNING)
                steps.journal.began.append(attempt.id)
                assert attempt.run
                steps.todo.append(StartMember(attempt.run, word.delay_s, word.rendezvous))
            case MemberOrder.FREEZE, State.RUNNING:
                attempt.is_halted, attempt.frozen_at = True, now
                self.machine.attempts.move(attempt, State.FROZEN)
                steps.todo.append(Freeze(attempt.id))
            case MemberOrder.FREEZE, State.FROZEN:
                attempt.is_halted = True
            case MemberOrder.THAW, State.FROZEN:
                attempt.is_halted = False
                self.machine.must_review = True

    def _why_not(self, attempt: AttemptRecord, over: int, pause_reason: str, now: float) -> str:
        """Return why a member that has not begun stands down; empty if it continues to wait."""
        if attempt.state is State.ENDING or attempt.id in self.machine.attempts.doubted:
            return ""
        if attempt.state is State.WAITING:
            return pause_reason or "its slots were no longer free when it came"
        if pause_reason or over > 0:
            return pause_reason or "its slots are needed by the owner"
        place, (_, ready_at) = attempt.run.gang if attempt.run else None, self._ready.get(attempt.id, (0, now))
        if attempt.state is State.PREPARED and place and now - max(self._word_at, ready_at) >= place.wait_s:
            return f"it was ready, and the master sent nothing for {place.wait_s:g} s"
        return ""
