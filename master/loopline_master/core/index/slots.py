"""Who could take more: workers with free slots, and those at work in all of them at which more may wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.ranking import Ranking


@dataclass(slots=True)
class Room:
    """A function of workers and of the attempts that they have."""

    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    full: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    """Workers that are at work in all their slots: (milliseconds of work that waits there, a slot; worker)."""
    laden: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # the same, < 0, of those with a queue

    def place_slots(self, worker: Worker, attempts: Attempts) -> None:
        """Enter whether it has slots free, as it is now."""
        name, waiting = worker.name, attempts.queues.of_worker.get(worker.name)
        in_hand = attempts.used.get(name, 0) + (len(waiting) if waiting else 0)
        free = worker.offered - in_hand
        if free > 0 and worker.is_available and not (worker.on_trial and in_hand):  # then one attempt at a time
            self.idle.place(name, (-free, -measure.merit(worker), name))
        elif name in self.idle.keys:
            self.idle.place(name, None)

    def place_queue(self, worker: Worker, attempts: Attempts) -> None:
        """Enter what waits there, as it is now: after its slots."""
        name, waiting_ms = worker.name, attempts.queues.work_ms.get(worker.name)
        wait_ms = waiting_ms / max(1, worker.offered) if waiting_ms else 0.0
        self.full.place(name, (wait_ms, name) if self.is_full(worker, attempts) else None)
        if waiting_ms or name in self.laden.keys:
            self.laden.place(name, (-wait_ms, name) if waiting_ms and worker.session is not None else None)

    def is_full(self, worker: Worker, attempts: Attempts) -> bool:
        """It is at work in all its slots, and more may wait there."""
        if worker.name in self.idle.keys or worker.offered <= 0 or not worker.is_available:
            return False
        return not worker.on_trial and worker.probation_until is None and worker.name not in attempts.frozen_on

    def free_slots(self, worker: Worker) -> int:
        """As placed: what it could take now."""
        key = self.idle.keys.get(worker.name)
        return 0 if key is None else -key[0]
