"""Which attempts run, which stand frozen, and which are given back, as the owner leaves more or less. Pure.

The oldest attempts keep running: they have done most already. What no longer fits is frozen at once; what has stood
still for the grace time is given back, since its work may be done elsewhere by then; what fits again is thawed.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopline_shared.model import AttemptId
from loopline_worker.core.owner_policy import Consent

_MEMORY_PAUSE_S = 5.0
"""From one attempt given back for want of memory to the next: until what it leaves is seen."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do now."""

    freeze: tuple[AttemptId, ...] = ()
    thaw: tuple[AttemptId, ...] = ()
    give_back: tuple[AttemptId, ...] = ()


class Ladder:
    """Told of every attempt that is in hand; ``now`` only ever grows."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._slots: dict[AttemptId, int] = {}  # the oldest first
        self._frozen: dict[AttemptId, float] = {}  # since when
        self._relieved = float("-inf")  # when one was last given back for want of memory

    @property
    def slots_at_work(self) -> int:
        return sum(slots for attempt, slots in self._slots.items() if attempt not in self._frozen)

    @property
    def slots_in_hand(self) -> int:
        """Frozen attempts included: they wait for theirs."""
        return sum(self._slots.values())

    @property
    def frozen(self) -> tuple[AttemptId, ...]:
        return tuple(self._frozen)

    @property
    def youngest(self) -> AttemptId | None:
        """It has least to lose."""
        return next(reversed(self._slots), None)

    def has(self, attempt: AttemptId) -> bool:
        return attempt in self._slots

    def has_room(self, slots: int, allowed: int) -> bool:
        """Whether one more attempt would run."""
        return self.slots_in_hand + slots <= allowed

    def took(self, attempt: AttemptId, slots: int) -> None:
        self._slots[attempt] = slots

    def followed(self, before: AttemptId, after: AttemptId, slots: int) -> None:
        """One has begun in the place of another that has ended: as the youngest, frozen where that was frozen."""
        self._slots.pop(before, None)
        self._slots[after] = slots
        if before in self._frozen:
            self._frozen[after] = self._frozen.pop(before)

    def ended(self, attempt: AttemptId) -> None:
        """Also of an attempt that is being given back: it takes no further part."""
        self._slots.pop(attempt, None)
        self._frozen.pop(attempt, None)

    def step(self, consent: Consent, now: float) -> Steps:
        """What the owner's consent asks for. Attempts that are given back are forgotten here."""
        running = self._fitting(consent.slots)
        freeze = tuple(attempt for attempt in self._slots if attempt not in running and attempt not in self._frozen)
        thaw = tuple(attempt for attempt in self._frozen if attempt in running)
        for attempt in thaw:
            del self._frozen[attempt]
        self._frozen |= dict.fromkeys(freeze, now)
        give_back = self._overdue(consent, now) or self._relief(consent, now)
        for attempt in give_back:
            self.ended(attempt)
        return Steps(tuple(attempt for attempt in freeze if attempt not in give_back), thaw, give_back)

    def _fitting(self, slots: int) -> set[AttemptId]:
        running = set()
        for attempt, needed in self._slots.items():
            if needed <= slots:
                slots -= needed
                running.add(attempt)
        return running

    def _overdue(self, consent: Consent, now: float) -> tuple[AttemptId, ...]:
        grace_s = 0.0 if consent.at_once else self._grace_s
        return tuple(attempt for attempt, since in self._frozen.items() if now - since >= grace_s)

    def _relief(self, consent: Consent, now: float) -> tuple[AttemptId, ...]:
        """The youngest, one at a time: it has least to lose."""
        if not (consent.short_of_memory and self._slots) or now - self._relieved < _MEMORY_PAUSE_S:
            return ()
        self._relieved = now
        return (next(reversed(self._slots)),)
