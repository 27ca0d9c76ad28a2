"""The preemption order: which attempts run, which are frozen and which are given back, as the owner leaves more or
less.

The oldest attempts keep running: they have done most already. What no longer fits is frozen at once; what has stood
still for the grace time is given back, since its work may be done elsewhere by then; what fits again is thawed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline_worker.core.attempts import AttemptRecord
from loopline_worker.core.owner_policy import Decision
from loopline_worker.core.transitions import State

_MEMORY_PAUSE_S = 5.0
"""From one attempt given back for want of memory to the next: until what it leaves is seen."""


@dataclass(slots=True)
class Steps:
    """Steps to take now, the oldest attempt first. An attempt that is given back is in no other list."""

    freeze: list[AttemptRecord]
    thaw: list[AttemptRecord]
    give_back: list[AttemptRecord]

    def __bool__(self) -> bool:
        return bool(self.freeze or self.thaw or self.give_back)


class PreemptionOrder:
    """Finds the steps that make what runs fit the decision of the owner policy; ``now`` never decreases."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._relieved_at = float("-inf")  # when one was last given back for want of memory

    def steps(self, oldest_first: Sequence[AttemptRecord], decision: Decision, now: float) -> Steps:
        """Return the steps that the decision asks for."""
        if not oldest_first:
            return Steps([], [], [])
        fits = _fitting(oldest_first, decision.slots)
        freeze, thaw, give_back = list[AttemptRecord](), list[AttemptRecord](), list[AttemptRecord]()
        grace_s = 0.0 if decision.at_once else self._grace_s
        for attempt, runs in zip(oldest_first, fits, strict=True):
            is_frozen = attempt.state is State.FROZEN
            if runs:
                if is_frozen:
                    thaw.append(attempt)
            elif now - (attempt.frozen_at if is_frozen else now) >= grace_s:
                give_back.append(attempt)
            elif not is_frozen:
                freeze.append(attempt)
        if not give_back and (youngest := self._relief(oldest_first, decision, now)):
            give_back = [youngest]
            freeze = [attempt for attempt in freeze if attempt is not youngest]
            thaw = [attempt for attempt in thaw if attempt is not youngest]
        return Steps(freeze, thaw, give_back)

    def _relief(self, oldest_first: Sequence[AttemptRecord], decision: Decision, now: float) -> AttemptRecord | None:
        """Return the youngest, one at a time: it has least to lose. None if memory is not short."""
        if not decision.short_of_memory or now - self._relieved_at < _MEMORY_PAUSE_S:
            return None
        self._relieved_at = now
        return oldest_first[-1]


def _fitting(oldest_first: Sequence[AttemptRecord], slots: int) -> list[bool]:
    """Return of each whether it runs in so many slots: the oldest first, and then what still fits."""
    fits = []
    for attempt in oldest_first:
        fits.append(attempt.slots <= slots)
        slots -= attempt.slots if fits[-1] else 0
    return fits
