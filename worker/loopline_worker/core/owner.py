"""The owner rule: which attempts run, are frozen or are preempted as the owner leaves more or fewer slots.

The owner policy (owner_policy.py) says how many slots tasks may use. The oldest attempts keep running, because they
have done most. An attempt that no longer fits is frozen at once, preempted after the grace time (another worker may
have done its work by then), and thawed if it fits again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopline_shared.model import AttemptId, Outcome
from loopline_worker.core.attempts import AttemptRecord, Attempts
from loopline_worker.core.events import OwnerObserved
from loopline_worker.core.instructions import Freeze, Instruction, Log, RecordPreemption, Thaw
from loopline_worker.core.owner_policy import Decision, OwnerPreferences, decide, is_present
from loopline_worker.core.transitions import State

_MEMORY_PAUSE_S = 5.0
"""Time between two attempts preempted because memory is short, so that the memory freed by the first is seen."""


OTHERS_WAIT = "it was frozen, and others wait for units that it held"


@dataclass(slots=True)
class Steps:
    """Steps to take now, the oldest attempt first. An attempt that is preempted is in no other list."""

    freeze: list[AttemptRecord]
    thaw: list[AttemptRecord]
    preempt: list[AttemptRecord]

    def __bool__(self) -> bool:
        return bool(self.freeze or self.thaw or self.preempt)


class PreemptionOrder:
    """Finds the steps that make the attempts fit the owner policy's decision; ``now`` never decreases."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._relieved_at = float("-inf")  # when an attempt was last preempted because memory was short

    def steps(self, oldest_first: Sequence[AttemptRecord], decision: Decision, now: float) -> Steps:
        """Return the steps that the decision asks for."""
        if not oldest_first:
            return Steps([], [], [])
        fits = _fitting(oldest_first, decision.slots)
        freeze, thaw, preempt = list[AttemptRecord](), list[AttemptRecord](), list[AttemptRecord]()
        grace_s = 0.0 if decision.at_once else self._grace_s
        for attempt, runs in zip(oldest_first, fits, strict=True):
            is_frozen = attempt.state is State.FROZEN
            if runs:
                if is_frozen and not attempt.is_halted:
                    thaw.append(attempt)
            elif now - (attempt.frozen_at if is_frozen else now) >= grace_s:
                preempt.append(attempt)
            elif not is_frozen:
                freeze.append(attempt)
        if not preempt and (youngest := self._relief(oldest_first, decision, now)):
            preempt = [youngest]
            freeze = [attempt for attempt in freeze if attempt is not youngest]
            thaw = [attempt for attempt in thaw if attempt is not youngest]
        return Steps(freeze, thaw, preempt)

    def _relief(self, oldest_first: Sequence[AttemptRecord], decision: Decision, now: float) -> AttemptRecord | None:
        """Return the youngest attempt, which has least to lose. None if memory is not short."""
        if not decision.short_of_memory or now - self._relieved_at < _MEMORY_PAUSE_S:
            return None
        self._relieved_at = now
        return oldest_first[-1]


def _fitting(oldest_first: Sequence[AttemptRecord], slots: int) -> list[bool]:
    """Return for each attempt whether it may run. Slots go to the oldest first; one that does not fit is skipped."""
    fits = []
    for attempt in oldest_first:
        fits.append(attempt.slots <= slots)
        slots -= attempt.slots if fits[-1] else 0
    return fits


@dataclass(slots=True)
class _Freezing:
    """Attempts that are being frozen, until all processes of all of them are stopped."""

    moving: dict[AttemptId, None]
    since: float  # time of the owner's input, else of the decision
    why: str
    after_input: bool
    count: int


class Owner:
    """Decides which attempts to freeze, thaw and preempt. A method that returns True made a change to report."""

    def __init__(self, attempts: Attempts, preferences: OwnerPreferences, grace_s: float, slots: int) -> None:
        self.decision = Decision(slots)
        self.is_present = False  # True also if presence is unknown; always False if the policy does not ask
        self._attempts = attempts
        self._preferences = preferences
        self._order = PreemptionOrder(grace_s)
        self._most = slots
        self._freezing: _Freezing | None = None
        self._is_final = False  # the agent is stopping, so later readings change nothing

    @property
    def freezing(self) -> int:
        """Return the number of attempts that are being frozen and may still run."""
        return len(self._freezing.moving) if self._freezing else 0

    @property
    def slots_allowed(self) -> int:
        """Return the slots that may be used: only those in use while no attempt may start."""
        slots = self.decision.slots
        if self._nothing_new:  # running and frozen attempts keep theirs
            return min(slots, sum(attempt.slots for attempt in self._attempts.oldest_first()))
        return slots

    @property
    def pause_reason(self) -> str:
        """Return why waiting attempts are preempted; empty if attempts may start."""
        if self._attempts.frozen or self._nothing_new or not self.decision.slots:
            return self.decision.why or "what runs here is frozen"
        return ""

    @property
    def _nothing_new(self) -> bool:
        return self.decision.short_of_memory or self.decision.nothing_new

    def observed(self, event: OwnerObserved, now: float, todo: list[Instruction]) -> bool:
        """Apply the owner policy to a reading."""
        if self._is_final:
            return False
        is_here = is_present(self._preferences, event.signs)
        has_come = is_here and not self.is_present and event.signs.idle_s is not None
        decision = decide(self._preferences, event.signs, self._most, self.decision.slots)
        has_news = decision != self.decision or is_here != self.is_present
        if decision != self.decision:
            text = f"tasks may use {decision.slots} of {self._most} slots"
            todo.append(Log(f"{text}: {decision.why}" if decision.why else text))
        self.decision, self.is_present = decision, is_here
        if self._freezing:  # again, because some may still run
            todo += [Freeze(attempt) for attempt in self._freezing.moving]
        since = event.input_at if has_come else now
        has_news |= self.review(now, todo, since, after_input=has_come)
        return self._settle(now, todo) or has_news

    def stop(self, reason: str, now: float, todo: list[Instruction]) -> None:
        """Allow no slots from now on: running attempts are preempted, and so is any that still begins."""
        self._is_final = True
        self.decision = Decision(0, reason, at_once=True)
        self.review(now, todo)

    def review(
        self, now: float, todo: list[Instruction], since: float | None = None, *, after_input: bool = False
    ) -> bool:
        """Freeze, thaw and preempt attempts according to the decision."""
        steps = self._order.steps(self._attempts.oldest_first(), self.decision, now)
        if not steps:
            return False
        for attempt in steps.preempt:
            self.leaves(attempt)
            gently = self._is_final and attempt.state is State.RUNNING
            todo.append(self._attempts.end(attempt, Outcome.GIVEN_BACK, self.decision.why, gently=gently))
        for attempt in steps.thaw:
            self.leaves(attempt)
            self._attempts.move(attempt, State.RUNNING)
            todo.append(Thaw(attempt.id))
        if steps.freeze:
            self._freeze(steps.freeze, now, now if since is None else since, after_input)
            todo += [Freeze(attempt.id) for attempt in steps.freeze]
        return True

    def preempt(self, preempted: Iterable[AttemptId], todo: list[Instruction]) -> None:
        """Preempt the frozen ones of these attempts, because other tasks wait for units that they hold."""
        for attempt in filter(None, map(self._attempts.get, preempted)):
            if attempt.state is State.FROZEN:
                self.leaves(attempt)
                todo.append(self._attempts.end(attempt, Outcome.GIVEN_BACK, OTHERS_WAIT))

    def followed(self, before: AttemptRecord, after: AttemptRecord) -> None:
        """Let ``after``, which began in the slot of ``before``, take its place among the frozen attempts."""
        after.frozen_at = before.frozen_at
        if self._freezing and before.id in self._freezing.moving:
            del self._freezing.moving[before.id]
            self._freezing.moving[after.id] = None

    def leaves(self, attempt: AttemptRecord) -> None:
        """Stop waiting for this attempt to freeze: it ends or continues."""
        if self._freezing:
            self._freezing.moving.pop(attempt.id, None)

    def freeze_completed(self, attempt: AttemptId, now: float, todo: list[Instruction]) -> bool:
        """Note that all processes of an attempt are stopped."""
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
        """Record how long freezing took, once all are frozen."""
        freezing = self._freezing
        if freezing is None or freezing.moving:
            return False
        self._freezing = None
        todo.append(RecordPreemption(freezing.why, freezing.count, now - freezing.since, freezing.after_input))
        return True
