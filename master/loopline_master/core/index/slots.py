"""Who could take more: workers with free slots, and those at work in all of them at which more may wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.ranking import Ranking


@dataclass(slots=True, eq=False)
class Room:
    """A function of workers and of the attempts that they have. What waits at workers is ranked when it is asked for:
    a worker that ends one task mostly has another one by then.
    """

    attempts: Attempts
    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    _full: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _laden: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _unranked: dict[str, Worker] = field(default_factory=dict)  # whose queues may stand elsewhere

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Room):
            return NotImplemented
        return (self.idle, self.full, self.laden) == (other.idle, other.full, other.laden)

    __hash__ = None  # type: ignore[assignment]

    @property
    def full(self) -> Ranking[str, tuple[float, str]]:
        """Workers at work in all their slots: (milliseconds of work that waits there, a slot; worker)."""
        if self._unranked:
            self._rank()
        return self._full

    @property
    def laden(self) -> Ranking[str, tuple[float, str]]:
        """The same with the milliseconds negated, of those with a queue."""
        if self._unranked:
            self._rank()
        return self._laden

    def _rank(self) -> None:
        for worker in self._unranked.values():
            self._place_queue(worker)
        self._unranked.clear()

    def place(self, worker: Worker) -> None:
        """Enter whether it has slots free, and what waits there, as it is now."""
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
        if waiting_ms or name in self._laden.keys:
            self._laden.place(name, (-wait_ms, name) if waiting_ms and worker.session is not None else None)

    def is_full(self, worker: Worker) -> bool:
        """It is at work in all its slots, and more may wait there."""
        if worker.name in self.idle.keys or worker.offered <= 0 or not worker.is_available:
            return False
        return not worker.on_trial and worker.probation_until is None and worker.name not in self.attempts.frozen_on

    def free_slots(self, worker: Worker) -> int:
        """As placed: what it could take now."""
        key = self.idle.keys.get(worker.name)
        return 0 if key is None else -key[0]
