"""Reports kept back: those without news are answered by whoever has the links, and stay outside the event log.

To the scheduler, and in its rows, the worker then has reported when it last had news. Its lease would end; so whoever
keeps the Reports back has ``told`` say from time to time, in one event for all workers, when each was last heard. An
event is a row of the log, and rows are to be few: a worker that goes on as before is given a lease of LONG_LEASES at
once. It is cut to a single one, counted from the last Report, as soon as that is over, or the link has ended. So a
worker that falls silent is given up when it would have been; whatever the scheduler decides, it decides from what the
log has; and a master that starts again begins every lease anew in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from loopline_master.core.entities import Worker
from loopline_master.core.events import Event, MasterStoodStill, WorkerLeft, WorkerReported, WorkersHeard
from loopline_master.core.reports.news import brings_news
from loopline_master.core.state import State
from loopline_shared.model import Load

LONG_LEASES = 10
"""A worker without news is given so many leases at once; if it dies before, ``told`` says so."""


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

    def told(self, events: Iterable[Event], now: float) -> list[Event]:
        """Return what is to be stepped before these events, at ``now``: who has fallen silent, and who has not."""
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
