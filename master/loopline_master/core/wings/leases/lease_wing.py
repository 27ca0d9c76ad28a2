"""The wing *leases*: loses the attempts of silent workers, and forgets workers.

An absent worker is forgotten on an admin's request, or after ``forget_workers_days``. A *transient* worker is
forgotten when its lease is over, or as soon as another worker needs its place (kernel/sessions/lost_workers.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import OCCUPYING, Worker
from loopline_master.core.kernel.kernel_events import MasterStarted, MasterStoodStill, WorkerForgotten, WorkersHeard
from loopline_master.core.kernel.sessions import leases
from loopline_master.core.kernel.sessions.lost_workers import forget_worker, is_needed


class Leases(Wing):
    def handlers(self) -> Mapping[type, Handler]:
        return {
            WorkersHeard: self._hear,
            MasterStarted: self._begin,
            MasterStoodStill: self._begin,
            WorkerForgotten: self._forget,
        }

    def due_at(self) -> float | None:
        order = self.state.index.leases.order
        return order[0][0] if order else None

    def expire(self) -> None:
        """Disconnect the workers whose leases have expired, and mark their attempts as lost."""
        for _, name in list(takewhile(lambda lease: lease[0] <= self.state.now, self.state.index.leases.order)):
            worker = self.state.workers[name]
            self._give_up(worker)
            if worker.facts.transient:
                self._forget_transient(worker)

    def _begin(self, event: MasterStarted | MasterStoodStill, tell: Tell) -> Reply:
        """Renew every lease: time passed while the master was stopped."""
        for worker in self.state.workers.values():
            leases.renew(self.state, worker)
            self.state.put(worker)
        return Done()

    def _hear(self, event: WorkersHeard, tell: Tell) -> Reply:
        """Apply the times of Reports that were kept back, and renew the leases."""
        for name, ago_s in event.ago_s.items():
            worker = self.state.workers[name]
            worker.reported_at = self.state.now - ago_s
            worker.lease_until = worker.reported_at + event.lease_s
            self.state.put(worker)
        return Done()

    def _forget(self, event: WorkerForgotten, tell: Tell) -> Reply:
        """Forget a worker, unless it is connected or still needed."""
        worker = self.state.workers.get(event.worker)
        if worker is None or event.worker in self.state.effects.gone:
            message = f"there is no worker {event.worker}"
            return Declined(404, "no_such_worker", message, "loopline workers lists them")
        if worker.session is not None:
            message = f"worker {worker.name} is connected"
            return Declined(409, "connected", message, "stop it first; `loopline leave` there takes it out for good")
        if is_needed(self.state, worker):
            message = f"a gang is planned on {worker.name}, or a task there may still be running"
            return Declined(409, "needed", message, "try again later")
        forget_worker(self.state, worker)
        return Done()

    def _give_up(self, worker: Worker) -> None:
        if worker.session is not None:
            self.state.effects.closes.append((worker.name, worker.session))
        for attempt in list(self.state.index.attempts.of_worker.get(worker.name, {}).values()):
            if attempt.state in OCCUPYING:
                lifecycle.lose(self.state, attempt, "its worker fell silent", for_good=False)
        for forget in self.state.wings.worker_left:
            forget(worker.name)
        leases.disconnect(self.state, worker)

    def _forget_transient(self, worker: Worker) -> None:
        """Forget a transient worker whose lease is over, once it has ended its fenced attempts.

        If a gang still needs it, its lease is extended by another.
        """
        if worker.name in self.state.effects.gone or self.state.index.attempts.is_fenced(worker.name):
            return
        if is_needed(self.state, worker):
            worker.lease_until = self.state.now + self.state.settings.lease_s
            self.state.put(worker)
        else:
            forget_worker(self.state, worker)
