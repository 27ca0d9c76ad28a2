"""Reports kept back: those without news are answered by whoever has the links, and stay outside the event log.

To the scheduler, and in its rows, the worker then has reported when it last had news. Its lease would end; so whoever
keeps the Reports back has ``told`` say from time to time, in one event for all workers, when each was last heard. An
event is a row of the log, and rows are to be few: a worker that goes on as before is given a lease of LONG_LEASES at
once. It is cut to a single one, counted from the last Report, as soon as that is over, or the link has ended. So a
worker that falls silent is given up when it would have been; whatever the scheduler decides, it decides from what the
log has; and a master that starts again begins every lease anew in any case.

**News** is what a Report says that the scheduler does not know yet. Most Reports of a grid say that all is as it was:
computers are idle, or are at the same tasks. All that would follow from such a Report is a new lease. The rows of the
table in worker_sessions.py that say *nothing to do*, and those parts of a load that no decision reads, or reads in
steps, are no news.
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
"""A worker without news is given so many leases at once; if it dies before, ``told`` says so."""
_SWAY = 1 / 8
"""Spare CPU that swings by less, per slot, about the bound between two quarters is no news each time."""
_DELAY_STEP_S = 0.01
"""Delays are told apart to so much (policies/turnaround.py) ..."""
_DELAY_FACTOR = 2.0
"""... and by this factor, for those of radio links sway."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """The last Report of a session, which was kept back."""

    session: int
    at: float
    lease_until: float
    load: Load


class KeptBack:
    """The workers whose last Reports brought no news. Times are those of the steps."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._heard: dict[str, LastReport] = {}  # by worker, the longest silent first

    def keep(self, event: WorkerReported, now: float) -> bool:
        """True if a Report is kept back; otherwise it is to be stepped, before the next of its link is shown here."""
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
        """Return the workers whose last Reports were kept back, with what these said."""
        found = ((name, self.last_heard(name)) for name in self._heard)
        return [(self._state.workers[name], heard.load) for name, heard in found if heard]

    @property
    def wake_at(self) -> float | None:
        """Time at which the next worker will have been silent for a lease. None if there is no such time."""
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
    """True if anything but a new lease would follow from this Report of the worker's open session.

    The first of a session does: what the worker holds is not known before. So does each of a worker in quarantine:
    every Assign repeats the notice to its owner.
    """
    if not worker.reported or report.results or any(brings(worker, report) for brings in state.wings.brings_news):
        return True
    return _has_moved(worker, report.load) or not _holds_as_believed(state, worker, report)


def _has_moved(worker: Worker, load: Load) -> bool:
    """True if what decisions read of a load has moved."""
    known, offered = worker.load, min(load.slots, worker.facts.slots)
    if known is None or offered != worker.offered or _words(load) != _words(known):
        return True
    swing = abs(load.spare_cpu - known.spare_cpu) / (offered or 1)
    if swing >= _SWAY and quarters_of(load, offered) != quarters_of(known, offered):
        return True
    less_s, more_s = sorted((load.delay_s or 0.0, known.delay_s or 0.0))
    return more_s - less_s >= _DELAY_STEP_S and more_s >= _DELAY_FACTOR * less_s


def _words(load: Load) -> tuple[object, ...]:
    """Return the parts of a load that are no amounts: whatever changes there is shown, and explained, at once."""
    return load.withheld, load.in_use, load.on_battery, load.yielded, load.preparing


def _holds_as_believed(state: State, worker: Worker, report: Report) -> bool:
    """True if the worker holds what it is believed to, each attempt in the state in which it is believed to be."""
    ours = state.index.attempts.of_worker.get(worker.name, {})
    frozen, waiting = {held.attempt: held.frozen for held in report.holding}, set(attempts_of(report.waiting))
    delivering = set(attempts_of(report.delivering))
    if len(ours) != len(frozen) + len(waiting) + len(delivering):
        return False
    for number, attempt in ours.items():
        if number in frozen:
            if attempt.state is not (AttemptState.FROZEN if frozen[number] else AttemptState.RUNNING):
                return False
        elif number in delivering:
            if attempt.state is not AttemptState.DELIVERING:
                return False
        elif attempt.state is not AttemptState.PREFETCHED or number not in waiting:
            return False
    return True
