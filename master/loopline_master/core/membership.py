"""Membership of workers: joining, leases and leaving; and jobs that stall because no worker can run them."""

from __future__ import annotations

from itertools import takewhile

from loopline_master.core import lifecycle
from loopline_master.core.effects import Declined, Done, Reply
from loopline_master.core.entities import OCCUPYING, Worker
from loopline_master.core.events import WorkerJoined
from loopline_master.core.state import State

_ALMOST_NEW = 1 / 16
"""By this part of it a lease may end early."""


def master_started(state: State) -> Reply:
    """Begin every lease anew and close every session: leases also ran while the master was away."""
    for worker in state.workers.values():
        renew_lease(state, worker)
        _disconnect(state, worker)
    return Done()


def join(state: State, event: WorkerJoined) -> Reply:
    """Open a session. What the worker holds is not known before its first Report."""
    worker = state.workers.get(event.worker)
    if worker is None and len(state.workers) >= state.settings.max_workers:
        message = f"{state.settings.max_workers:,} workers are known, which is this master's limit"
        return Declined(503, "too_many_workers", message, "raise max_workers in the master's settings")
    if worker is None:
        worker = Worker(event.worker, event.boot, event.facts, joined_at=state.now, lease_until=0.0)
    elif worker.session is not None:
        state.effects.closes.append((worker.name, worker.session))
    _disconnect(state, worker)  # and so out of the requirement classes that its old facts met
    worker.session, worker.boot, worker.facts = event.session, event.boot, event.facts
    renew_lease(state, worker)
    state.put(worker)
    return Done()


def renew_lease(state: State, worker: Worker) -> None:
    """Renew the lease of a worker that has reported. A lease that is almost new is left as it is.

    So most Reports change no lease.
    """
    settings, until = state.settings, state.grid.now + state.settings.lease_s
    older_s = abs(until - worker.lease_until)
    if older_s > _ALMOST_NEW * settings.lease_s or older_s > (settings.lease_s - settings.report_every_s) / 2:
        worker.lease_until = until


def leave(state: State, name: str, session: int) -> Reply:
    """Close the session of a worker; it is believed to be working until its lease expires."""
    worker = state.workers.get(name)
    if worker is not None and worker.session == session:
        _disconnect(state, worker)
    return Done()


def expire_leases(state: State) -> None:
    """Disconnect the workers whose leases have expired, and mark their attempts as lost."""
    for _, name in list(takewhile(lambda lease: lease[0] <= state.now, state.index.leases.order)):
        _give_up(state, state.workers[name])


def stall(state: State) -> None:
    """Mark jobs as stalled that starved for too long."""
    starved_s = state.settings.stall_after_s
    for _, job_id in takewhile(lambda starving: starving[0] + starved_s <= state.now, state.index.starving.order):
        job = state.jobs[job_id]
        job.stalled = True
        state.put(job)


def wake_at(state: State) -> float | None:
    """Return the time at which a lease, a quarantine or a starving job will next be due; None if none will."""
    leases, starving = state.index.leases.order, state.index.starving.order
    probations = state.index.probations.order
    times = [order[0][0] for order in (leases, probations) if order]
    times += [starving[0][0] + state.settings.stall_after_s] if starving else []
    return min(times, default=None)


def _give_up(state: State, worker: Worker) -> None:
    if worker.session is not None:
        state.effects.closes.append((worker.name, worker.session))
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        if attempt.state in OCCUPYING:
            lifecycle.lose_attempt(state, attempt, "its worker fell silent", for_good=False)
    _disconnect(state, worker)


def _disconnect(state: State, worker: Worker) -> None:
    worker.session, worker.offered, worker.reported, worker.assigned = None, 0, 0, 0
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        if attempt.sent:
            attempt.sent = 0
            state.put(attempt)
    state.put(worker)
