"""The members of gangs that a worker has: prepared, begun at the master's word, frozen and thawed with the others.

A member that cannot have its slots at once, whose owner is back, or that hears nothing of its master for too long
stands down before it has begun: it is preempted, and nothing is lost. The master decides all the rest, for it alone
knows how the other members are.
"""

from __future__ import annotations

from collections.abc import Iterable

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.gang_messages import Member, MemberOrder, Word
from loopline_worker.core.attempts import AttemptRecord, Attempts
from loopline_worker.core.instructions import Freeze, Instructions, StartMember
from loopline_worker.core.transitions import State


class GangMembers:
    """Follows the master's words. Its only state is when the master was last heard of."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._heard_at = 0.0  # by the clock of ``now``

    def prepared(self, attempt_id: AttemptId, port: int, now: float) -> bool:
        """Note that a member is ready to begin; False if it was told to end meanwhile."""
        attempt = self._attempts.preparing.get(attempt_id)
        if attempt is None:
            return False
        attempt.port, attempt.ready_at = port, now
        self._attempts.move(attempt, State.PREPARED)
        return True

    def hear(self, words: Iterable[Word], now: float, steps: Instructions) -> bool:
        """Take in an Assign's words. Return True if something may go on that the master had frozen."""
        self._heard_at = now
        may_go_on = False
        for word in words:
            attempt = self._attempts.get(word.attempt)
            if attempt is not None:
                may_go_on |= self._obey(attempt, word, now, steps)
        return may_go_on

    def stand_down(self, allowed: int, pause_reason: str, now: float, steps: Instructions) -> None:
        """Preempt those that cannot have their slots, or must leave them, and those that wait for too long."""
        over = self._attempts.taken - allowed
        for attempt in reversed(list(self._attempts.members.values())):
            reason = self._why_not(attempt, over, pause_reason, now)
            if reason and attempt.state is State.WAITING:
                self._attempts.drop(attempt, Outcome.GIVEN_BACK, reason)
            elif reason:
                over -= attempt.slots
                steps.todo.append(self._attempts.end(attempt, Outcome.GIVEN_BACK, reason))

    def _obey(self, attempt: AttemptRecord, word: Word, now: float, steps: Instructions) -> bool:
        match word.order, attempt.state:
            case MemberOrder.START, State.PREPARED:
                self._attempts.move(attempt, State.RUNNING)
                steps.journal.began.append(attempt.id)
                assert attempt.run
                steps.todo.append(StartMember(attempt.run, word.delay_s, word.rendezvous))
            case MemberOrder.FREEZE, State.RUNNING:
                attempt.is_halted, attempt.frozen_at = True, now
                self._attempts.move(attempt, State.FROZEN)
                steps.todo.append(Freeze(attempt.id))
            case MemberOrder.FREEZE, State.FROZEN:
                attempt.is_halted = True
            case MemberOrder.THAW, State.FROZEN:
                attempt.is_halted = False
                return True
        return False

    def _why_not(self, attempt: AttemptRecord, over: int, pause_reason: str, now: float) -> str:
        """Return why a member that has not begun stands down; empty if it goes on waiting."""
        if attempt.state is State.ENDING or attempt.id in self._attempts.doubted:
            return ""
        if attempt.state is State.WAITING:
            return pause_reason or "its slots were no longer free when it came"
        if pause_reason or over > 0:
            return pause_reason or "its slots are needed by the owner"
        place = attempt.run.gang if attempt.run else None
        if attempt.state is State.PREPARED and place and now - max(self._heard_at, attempt.ready_at) >= place.wait_s:
            return f"it was ready, and the master sent nothing for {place.wait_s:g} s"
        return ""


def members_reported(attempts: Attempts) -> list[Member]:
    """Return the members that have not begun, as the next Report has them."""
    return [
        Member(attempt.id, is_ready=attempt.state is State.PREPARED, port=attempt.port)
        for attempt in attempts.members.values()
        if attempt.id not in attempts.disowned
    ]
