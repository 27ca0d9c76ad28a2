"""Slots of workers: workers with free slots, and busy ones at which more attempts may wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.ranking import Ranking


@dataclass(slots=True, eq=False)
class Slots:
    """A function of the workers and their attempts. Queues at workers are ranked when the ranking is read.

    By then, a worker that has ended one task has mostly been given another one.
    """

    attempts: Attempts
    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    _full: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _backlog: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _unranked: dict[str, Worker] = field(default_factory=dict)  # whose queues may stand elsewhere

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slots):
            return NotImplemented
        return (self.idle, self.full, self.backlog) == (other.idle, other.full, other.backlog)

    __hash__ = None  # type: ignore[assignment]

    @property
    def full(self) -> Ranking[str, tuple[float, str]]:
        """Busy workers at which more may wait, as (milliseconds of work that waits there for each slot, worker)."""
        if self._unranked:
            self._rank()
        return self._full

    @property
    def backlog(self) -> Ranking[str, tuple[float, str]]:
        """Workers with a queue, longest first, as (negated milliseconds of waiting work for each slot, worker)."""
        if self._unranked:
            self._rank()
        return self._backlog

    def _rank(self) -> None:
        for worker in self._unranked.values():
            self._place_queue(worker)
        self._unranked.clear()

    def place(self, worker: Worker) -> None:
        """Enter a worker's free slots as they are now; its queue is ranked later."""
        name, attempts = worker.name, self.attempts
        self._unranked[name] = worker
        waiting = attempts.queues.of_worker.get(name)
        in_hand = attempts.used.get(name, 0) + (len(waiting) if waiting else 0)
        free = worker.offered - in_hand
        if free > 0 and worker.is_available and not (worker.on_trial and in_hand):  # then one attempt at a time
            self.idle.place(name, (-free, -measure.merit(worker), name))
        elif name in self.idle.keys:
            self.idle.place(name, None)

    def _place_queue(self, worker: Worker) -> None:
        name, waiting_ms = worker.name, self.attempts.queues.work_ms.get(worker.name)
        wait_ms = waiting_ms / max(1, worker.offered) if waiting_ms else 0.0
        self._full.place(name, (wait_ms, name) if self.is_full(worker) else None)
        if waiting_ms or name in self._backlog.keys:
            self._backlog.place(name, (-wait_ms, name) if waiting_ms and worker.session is not None else None)

    def is_full(self, worker: Worker) -> bool:
        """True if all slots of the worker are busy and more attempts may wait there."""
        if worker.name in self.idle.keys or worker.offered <= 0 or not worker.is_available:
            return False
        return not worker.on_trial and worker.probation_until is None and worker.name not in self.attempts.frozen_on

    def free_slots(self, worker: Worker) -> int:
        """Return the worker's free slots, as last placed."""
        key = self.idle.keys.get(worker.name)
        return 0 if key is None else -key[0]
