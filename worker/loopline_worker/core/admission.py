"""Admission of attempts: which start, which are prefetched, which are given back because they would wait for long."""

from __future__ import annotations

from loopline_shared.model import Outcome
from loopline_worker.core.attempts import Attempts
from loopline_worker.core.instructions import Instructions, Log, Prefetch, Retract, Start
from loopline_worker.core.transitions import State


class Admission:
    """Serves the queue of a worker. Its only state is that of a retract."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._is_retracting = False  # for a retract, whose outcome is not known
        self.has_retracted = (
            False  # a retract was carried out: until the end of the step, what is prefetched has begun
        )

    def retract(self, steps: Instructions) -> None:
        """Take back what is prefetched, unless that has just been done."""
        if self._attempts.prefetched and not (self._is_retracting or self.has_retracted):
            self._is_retracting = True
            steps.todo.append(Retract())

    def retracted(self) -> None:
        """Note the outcome of a retract."""
        self._is_retracting, self.has_retracted = False, True

    def serve(self, allowed: int, pause_reason: str, why: str, room: int, steps: Instructions) -> None:
        """Start what fits in the ``allowed`` slots, and prefetch as many attempts as there is ``room`` for.

        ``pause_reason``: why nothing may start; ``why``: why no more slots are allowed.
        """
        if pause_reason:
            self.retract(steps)
            self._drop(0, pause_reason, steps)
            return
        if self._attempts.prefetched and self._attempts.taken < allowed:
            self.retract(steps)  # it came before what waits: it may have the free slots first
        if not self._is_retracting:
            self._begin(allowed, steps)
        self._drop(allowed, why, steps)
        if room:
            self._prefetch(allowed, room, steps)

    def _begin(self, allowed: int, steps: Instructions) -> None:
        """Start what waits and fits, unless what was prefetched comes first."""
        attempts = self._attempts
        free = allowed - attempts.taken
        if free <= 0 or not attempts.waiting:
            return
        for attempt in list(attempts.fitting(free)):
            assert attempt.run
            attempts.occupy(attempt)
            attempts.move(attempt, State.RUNNING)
            steps.journal.began.append(attempt.id)
            steps.todo.append(Start(attempt.run))

    def _prefetch(self, allowed: int, room: int, steps: Instructions) -> None:
        """Hand on the first of those that wait, where every slot is taken by an attempt of its own."""
        attempts = self._attempts
        if self._is_retracting or not attempts.waiting or not attempts.taken == attempts.with_slots == allowed > 0:
            return
        for attempt in attempts.to_prefetch(room):
            assert attempt.run
            attempts.move(attempt, State.PREFETCHED)
            steps.journal.began.append(attempt.id)
            steps.todo.append(Prefetch(attempt.run))

    def _drop(self, wider_than: int, reason: str, steps: Instructions) -> None:
        """Give back what waits for more slots than that."""
        dropped = self._attempts.waiting.wider_than(wider_than)
        for attempt in dropped:
            self._attempts.drop(attempt, Outcome.GIVEN_BACK, reason)
        if dropped:
            steps.todo.append(Log(f"{len(dropped)} attempts that waited are given back: {reason}"))
