"""Reports kept back: Reports without news are answered by the owner of the links, and stay outside the event log.

For the scheduler and its rows, the worker's last Report is then its last with news. Its lease would end, so the owner
of the links steps ``silence_events`` from time to time: one event for all workers with the times of their last
Reports. Events are rows of the log and should be few, so a worker without changes is given a lease of LONG_LEASES at
once. The lease is cut to a single one, counted from the last Report, as soon as that one is over or the link has
ended. So a silent worker is given up at the same time as without this scheme, every decision is based on the log
alone, and a restarted master restarts every lease anyway.

**News** is the content of a Report that the scheduler does not know yet. Most Reports of a grid repeat the state:
computers are idle, or are at the same tasks. Such a Report would only renew a lease. The rows of the table in
worker_sessions.py that say *nothing to do* are no news. Neither are parts of a load that no decision reads, or reads
only in steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from loopline_master.core.estimates.measure import quarters_of
from loopline_master.core.events import Event, MasterStoodStill, WorkerLeft, WorkerReported, WorkersHeard
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState, Load
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.worker_link import Report

LONG_LEASES = 10
"""Number of leases given at once to a worker without news; if it dies earlier, ``silence_events`` corrects this."""
_SWAY = 1 / 8
"""Smaller changes of spare CPU, per slot, are no news, even across the bound between two quarters."""
_DELAY_STEP_S = 0.01
"""Smaller changes of a delay, in seconds, are no news (policies/turnaround.py) ..."""
_DELAY_FACTOR = 2.0
"""... nor changes by a smaller factor, because delays of radio links vary."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """The last Report of a session, which was kept back."""

    session: int
    at: float
    lease_until: float
    load: Load


class KeptBack:
    """Workers whose last Reports brought no news. Times are those of the steps."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._heard: dict[str, LastReport] = {}  # by worker, the longest silent first

    def keep(self, event: WorkerReported, now: float) -> bool:
        """True if a Report is kept back; otherwise the caller must step it before it passes the link's next one."""
        name, session, report = event.worker, event.session, event.report
        worker = self._state.workers.get(name)
        if worker is None or worker.session != session:
            return False
        self._heard.pop(name, None)
        if brings_news(self._state, worker, report):
            return False
        self._heard[name] = LastReport(session, now, now + self._state.settings.lease_s, report.load)
        return True

    def last_heard(self, name: str) -> LastReport | None:
        """Return the last Report of a worker's open session; None if the scheduler has it."""
        heard, worker = self._heard.get(name), self._state.workers.get(name)
        return heard if heard and worker and worker.session == heard.session else None

    def loads(self) -> list[tuple[Worker, Load]]:
        """Return the workers whose last Reports were kept back, with the loads from these."""
        found = ((name, self.last_heard(name)) for name in self._heard)
        return [(self._state.workers[name], heard.load) for name, heard in found if heard]

    @property
    def wake_at(self) -> float | None:
        """Time when the next worker will have been silent for a lease. None if there is no such time."""
        return next((heard.lease_until for heard in self._heard.values()), None)

    def silence_events(self, events: Iterable[Event], now: float) -> list[Event]:
        """Return events to step before these at ``now``: workers that went silent, and renewed leases."""
        lease_s, told = self._state.settings.lease_s, list[Event]()
        if any(isinstance(event, MasterStoodStill) for event in events):
            self._heard = {name: replace(one, at=now, lease_until=now + lease_s) for name, one in self._heard.items()}
        gone = [name for name, _ in takewhile(lambda one: one[1].lease_until <= now, self._heard.items())]
        gone += [event.worker for event in events if isinstance(event, WorkerLeft) and self._is_of(event)]
        if ends := {name: self._heard.pop(name) for name in dict.fromkeys(gone)}:
            told += self._say(ends, now, lease_s)
        due = takewhile(lambda lease: lease[0] <= now, self._state.index.leases.order)
        if any(name in self._heard for _, name in due):
            told += self._say(self._heard, now, LONG_LEASES * lease_s)
        elif self._heard:
            asked = {name for ask in self._state.wings.workers_to_hear for name in ask(now)}
            heard = {name: one for name, one in self._heard.items() if name in asked}
            told += self._say(heard, now, LONG_LEASES * lease_s)
        return told

    def _is_of(self, event: WorkerLeft) -> bool:
        heard = self._heard.get(event.worker)
        return heard is not None and heard.session == event.session

    def _say(self, heard: dict[str, LastReport], now: float, lease_s: float) -> list[Event]:
        """Return the event, without workers that have another session by now."""
        workers = self._state.workers
        open_ones = [(name, one) for name, one in heard.items() if name in workers]
        ago_s = {name: round(now - one.at, 3) for name, one in open_ones if workers[name].session == one.session}
        return [WorkersHeard(ago_s, lease_s)] if ago_s else []


def brings_news(state: State, worker: Worker, report: Report) -> bool:
    """True if this Report of the worker's open session would do more than renew a lease.

    The first Report of a session does, because the worker's attempts are unknown before it. So does each Report of a
    worker in quarantine, because every Assign repeats the notice to its owner.
    """
    wings = state.wings
    if not worker.reported or report.results or any(brings(worker, report) for brings in wings.brings_news):
        return True
    if any(getattr(report, field) and brings(worker, report) for field, brings in wings.reported):
        return True
    return _has_moved(worker, report.load) or not _holds_as_believed(state, worker, report)


def _has_moved(worker: Worker, load: Load) -> bool:
    """True if a part of the load that decisions read has changed."""
    known, offered = worker.load, min(load.slots, worker.facts.slots)
    if known is None or offered != worker.offered or _words(load) != _words(known):
        return True
    swing = abs(load.spare_cpu - known.spare_cpu) / (offered or 1)
    if swing >= _SWAY and quarters_of(load, offered) != quarters_of(known, offered):
        return True
    less_s, more_s = sorted((load.delay_s or 0.0, known.delay_s or 0.0))
    return more_s - less_s >= _DELAY_STEP_S and more_s >= _DELAY_FACTOR * less_s


def _words(load: Load) -> tuple[object, ...]:
    """Return the parts of a load that are not amounts: each of their changes is shown and explained at once."""
    return load.withheld, load.in_use, load.on_battery, load.yielded, load.preparing, load.withheld_gpus


def _holds_as_believed(state: State, worker: Worker, report: Report) -> bool:
    """True if the worker holds the attempts that it is believed to hold, in their believed states."""
    ours, named = state.index.attempts.of_worker.get(worker.name, {}), 0
    begun, waiting = {held.attempt: held for held in report.holding}, set(attempts_of(report.waiting))
    delivering = set(attempts_of(report.delivering))
    for number, attempt in ours.items():
        if number in begun:
            held = begun[number]
            if attempt.state is not (AttemptState.FROZEN if held.frozen else AttemptState.RUNNING):
                return False
            if attempt.is_set_up is not held.is_set_up:
                return False
        elif number in delivering:
            if attempt.state is not AttemptState.DELIVERING:
                return False
        elif attempt.state is AttemptState.FINISHED:  # a gang's member, whose worker has forgotten it
            continue
        elif attempt.state is not AttemptState.PREFETCHED or number not in waiting:
            return False
        named += 1
    return named == len(begun) + len(waiting) + len(delivering)
