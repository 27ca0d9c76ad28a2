"""Leases: for how long a silent worker is believed to be at work, and what becomes of its attempts then."""

from __future__ import annotations

from itertools import takewhile

from loopline_master.core.events import WorkersHeard
from loopline_master.core.kernel import lost_workers
from loopline_master.core.kernel.effects import Done, Reply
from loopline_master.core.kernel.entities import OCCUPYING, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs import phases
from loopline_master.core.wings.transfers import carrying

_ALMOST_NEW = 1 / 16  # by this part of it a lease may end early


def begin(state: State, *, with_sessions: bool) -> Reply:
    """Begin every lease anew, for they ran while the master was away; with sessions, close every one."""
    for worker in state.workers.values():
        renew(state, worker)
        (disconnect if with_sessions else State.put)(state, worker)
    return Done()


def renew(state: State, worker: Worker) -> None:
    """Renew the lease of a worker that has reported. A lease that is almost new is left as it is.

    So most Reports change no lease.
    """
    settings, until = state.settings, state.grid.now + state.settings.lease_s
    older_s = abs(until - worker.lease_until)
    if older_s > _ALMOST_NEW * settings.lease_s or older_s > (settings.lease_s - settings.report_every_s) / 2:
        worker.lease_until = until


def hear(state: State, event: WorkersHeard) -> Reply:
    """Take in when workers were last heard whose Reports were kept back, and how long their leases are from then."""
    for name, ago_s in event.ago_s.items():
        worker = state.workers[name]
        worker.reported_at = state.now - ago_s
        worker.lease_until = worker.reported_at + event.lease_s
        state.put(worker)
    return Done()


def expire(state: State) -> None:
    """Disconnect the workers whose leases have expired, and mark their attempts as lost."""
    for _, name in list(takewhile(lambda lease: lease[0] <= state.now, state.index.leases.order)):
        worker = state.workers[name]
        _give_up(state, worker)
        if worker.facts.transient:
            lost_workers.let_transient_go(state, worker)


def disconnect(state: State, worker: Worker) -> None:
    """End the session of a worker; it is believed to be at work until its lease ends."""
    worker.session, worker.offered, worker.reported, worker.assigned = None, 0, 0, 0
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        if attempt.sent:
            attempt.sent = 0
            state.put(attempt)
    state.put(worker)


def _give_up(state: State, worker: Worker) -> None:
    if worker.session is not None:
        state.effects.closes.append((worker.name, worker.session))
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        if attempt.state in OCCUPYING:
            phases.lose(state, attempt, "its worker fell silent", for_good=False)
    carrying.forget(state, worker.name)
    disconnect(state, worker)
