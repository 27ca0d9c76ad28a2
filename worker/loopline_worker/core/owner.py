"""The owner rule: what the owner policy allows now, and the freezing that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_shared.model import AttemptId, Outcome
from loopline_worker.core.attempts import AttemptRecord, Attempts
from loopline_worker.core.events import OwnerObserved
from loopline_worker.core.instructions import Freeze, Instruction, Log, RecordPreemption, Thaw
from loopline_worker.core.owner_policy import Decision, OwnerPreferences, decide, is_there
from loopline_worker.core.preemption import PreemptionOrder
from loopline_worker.core.transitions import State


@dataclass(slots=True)
class _Freezing:
    """Attempts that were told to freeze, until the last of them has."""

    moving: dict[AttemptId, None]
    since: float  # the input, or else when it was decided
    why: str
    after_input: bool
    count: int


class Owner:
    """Decides whom to freeze, thaw and give back. Methods that change anything say so with True: a Report is due."""

    def __init__(self, attempts: Attempts, preferences: OwnerPreferences, grace_s: float, slots: int) -> None:
        self.decision = Decision(slots)
        self.is_there = False  # or nobody can tell; always False where nobody asks
        self._attempts = attempts
        self._preferences = preferences
        self._order = PreemptionOrder(grace_s)
        self._most = slots
        self._freezing: _Freezing | None = None
        self._is_final = False  # the agent stops, whatever the owner does

    @property
    def freezing(self) -> int:
        """Return the number of attempts that were told to freeze and may still move."""
        return len(self._freezing.moving) if self._freezing else 0

    @property
    def slots_allowed(self) -> int:
        """Return the slots that may be used: while memory is short, what ends is not replaced."""
        slots = self.decision.slots
        return min(slots, self._slots_in_hand()) if self.decision.short_of_memory else slots

    @property
    def pause_reason(self) -> str:
        """Return why what waits here would wait for long; empty if attempts may start."""
        if self._attempts.frozen or self.decision.short_of_memory or not self.decision.slots:
            return self.decision.why or "what runs here stands still"
        return ""

    def looked(self, event: OwnerObserved, now: float, todo: list[Instruction]) -> bool:
        """Apply the owner policy to what was seen."""
        if self._is_final:
            return False
        here = is_there(self._preferences, event.signs)
        has_come = here and not self.is_there and event.signs.idle_s is not None
        decision = decide(self._preferences, event.signs, self._most, self.decision.slots)
        has_news = decision != self.decision or here != self.is_there
        if decision != self.decision:
            text = f"tasks may use {decision.slots} of {self._most} slots"
            todo.append(Log(f"{text}: {decision.why}" if decision.why else text))
        self.decision, self.is_there = decision, here
        if self._freezing:  # again: some may move still
            todo += [Freeze(attempt) for attempt in self._freezing.moving]
        since = event.input_at if has_come else now
        has_news |= self.review(now, todo, since, after_input=has_come)
        return self._settle(now, todo) or has_news

    def stop(self, reason: str, now: float, todo: list[Instruction]) -> None:
        """Allow nothing from now on: whatever has begun is given back, and what begins still is, too."""
        self._is_final = True
        self.decision = Decision(0, reason, at_once=True)
        self.review(now, todo)

    def review(
        self, now: float, todo: list[Instruction], since: float | None = None, *, after_input: bool = False
    ) -> bool:
        """Freeze, thaw and give back what the decision asks for."""
        steps = self._order.steps(self._attempts.oldest_first(), self.decision, now)
        if not steps:
            return False
        for attempt in steps.give_back:
            self.leaves(attempt)
            todo.append(self._attempts.end(attempt, Outcome.GIVEN_BACK, self.decision.why))
        for attempt in steps.thaw:
            self.leaves(attempt)
            self._attempts.move(attempt, State.RUNNING)
            todo.append(Thaw(attempt.id))
        if steps.freeze:
            self._freeze(steps.freeze, now, now if since is None else since, after_input)
            todo += [Freeze(attempt.id) for attempt in steps.freeze]
        return True

    def followed(self, before: AttemptRecord, after: AttemptRecord) -> None:
        """Have an attempt that began in the slot of a frozen one stand still in its place."""
        after.frozen_at = before.frozen_at
        if self._freezing and before.id in self._freezing.moving:
            del self._freezing.moving[before.id]
            self._freezing.moving[after.id] = None

    def leaves(self, attempt: AttemptRecord) -> None:
        """Wait no longer for this one to stand still: it ends, or goes on."""
        if self._freezing:
            self._freezing.moving.pop(attempt.id, None)

    def stilled(self, attempt: AttemptId, now: float, todo: list[Instruction]) -> bool:
        """Note that nothing of it moves any more."""
        if self._freezing:
            self._freezing.moving.pop(attempt, None)
        return self._settle(now, todo)

    def _freeze(self, attempts: list[AttemptRecord], now: float, since: float, after_input: bool) -> None:
        for attempt in attempts:
            attempt.frozen_at = now
            self._attempts.move(attempt, State.FROZEN)
        earlier = self._freezing.moving if self._freezing else {}
        moving = dict.fromkeys(attempt.id for attempt in attempts) | earlier
        self._freezing = _Freezing(moving, since, self.decision.why, after_input, len(moving))

    def _settle(self, now: float, todo: list[Instruction]) -> bool:
        """Record how long it took, once all stands still."""
        freezing = self._freezing
        if freezing is None or freezing.moving:
            return False
        self._freezing = None
        todo.append(RecordPreemption(freezing.why, freezing.count, now - freezing.since, freezing.after_input))
        return True

    def _slots_in_hand(self) -> int:
        """Count the slots of what runs and of what stands frozen, which waits for its own."""
        return sum(attempt.slots for attempt in self._attempts.oldest_first())
