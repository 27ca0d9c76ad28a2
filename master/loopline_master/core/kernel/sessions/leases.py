"""Leases: the time for which a silent worker is believed to be at work."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State

_ALMOST_NEW = 1 / 16  # part of a lease that may be missing at its end
_MARGIN_S, _MARGIN = 10.0, 1 / 8
"""Margin after a term, in seconds and as a part of the term. Supervisors look at the clock once a second, and the
master does not renew a lease that is almost new."""


def ended_after_s(term_s: float) -> float:
    """Return a silence in seconds: a worker that was silent that long has ended an attempt with this term."""
    return term_s + _MARGIN_S + _MARGIN * term_s


def renew(state: State, worker: Worker) -> None:
    """Renew the lease of a worker that has reported, unless the lease is almost new.

    So most Reports change no lease.
    """
    settings, until = state.settings, state.grid.now + state.settings.lease_s
    older_s = abs(until - worker.lease_until)
    if older_s > _ALMOST_NEW * settings.lease_s or older_s > (settings.lease_s - settings.report_every_s) / 2:
        worker.lease_until = until


def disconnect(state: State, worker: Worker) -> None:
    """End the session of a worker; it is believed to be at work until its lease ends."""
    worker.session, worker.offered, worker.reported, worker.assigned = None, 0, 0, 0
    for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
        if attempt.sent:
            attempt.sent = 0
            state.put(attempt)
    state.put(worker)
