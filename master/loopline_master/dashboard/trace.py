"""A window of time as Chrome's trace-event JSON (rest.columns.Trace), for Perfetto, speedscope and
chrome://tracing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from pydantic_core import to_json

from loopline_master.dashboard.columns import own_end, spans
from loopline_master.store.queries.timeline_queries import Window
from loopline_shared.model import AttemptState

_HOLDS = "last tasks held"
Event = dict[str, Any]


def trace(window: Window, now: float) -> bytes:
    """Return the trace: a process for each worker, a thread for each slot; running attempts end ``now``.

    Times count from the first event. Attempts that never took a slot, because they were only prefetched, are left
    out.
    """
    started = sorted((row for row in window.bars if row.started_at is not None), key=lambda row: row.started_at)
    begins = [row.started_at for row in started] + [hold.since for hold in window.held]
    tracing = Tracing({row.worker for row in started}, window.names, min(begins, default=window.since), now)
    events = [*tracing.begin(), *tracing.add(started), *tracing.end(window.held)]
    return BEGIN + packed(events) + END


BEGIN, END = b'{"traceEvents":[', b'],"displayTimeUnit":"ms"}'


def packed(events: Sequence[Event]) -> bytes:
    """Return events as they stand in the list of a trace, without its brackets."""
    return to_json(events)[1:-1]


class Tracing:
    """Makes the events of a trace, of attempts in the order in which they began; it keeps one a slot."""

    def __init__(self, workers: Collection[str], names: Mapping[int, str], zero: float, now: float) -> None:
        self._names, self._zero, self._now = names, zero, now
        self._pids = {name: pid for pid, name in enumerate(sorted(workers), start=1)}
        self._lanes = {name: _Lanes() for name in workers}
        self._latest: dict[tuple[str, int], Any] = {}

    def begin(self) -> Iterator[Event]:
        """Yield the names of the processes."""
        yield from (_name("process_name", pid, 0, name) for name, pid in self._pids.items())

    def add(self, started: Iterable[Any]) -> Iterator[Event]:
        """Yield the events of attempts that end before others begin in their slots."""
        for row in started:
            if not row.slot:
                yield from self._attempt(row, own_end(row))
                continue
            before = self._latest.get((row.worker, row.slot))
            self._latest[row.worker, row.slot] = row
            if before is not None:
                end = own_end(before)
                yield from self._attempt(before, None if end is None else min(end, row.started_at))

    def end(self, held: Sequence[Any]) -> Iterator[Event]:
        """Yield the events of the last attempt of each slot, and of the times for which last tasks were held."""
        for row in self._latest.values():
            yield from self._attempt(row, own_end(row))
        yield from _holds(held, self._names, len(self._pids) + 1, self._zero, self._now)

    def _attempt(self, row: Any, free_at: float | None) -> Iterator[Event]:
        end, zero = max(row.started_at, self._now) if free_at is None else free_at, self._zero
        pid, tid = self._pids[row.worker], row.slot or self._lanes[row.worker].place(row.started_at, end)
        arguments = {
            "job": self._names[row.job],
            "state": AttemptState(row.state).without_phase,
            "replica": bool(row.replica),
            "accepted": bool(row.accepted),
        }
        if row.phases and row.ended_at is not None:
            arguments["upload_s"] = round(max(0.0, row.ended_at - end), 3)
        if row.state == AttemptState.LOST and row.ended_at is None:
            arguments["end"] = "not known: it may come back"
        category = "replica" if row.replica else "attempt"
        name = f"{row.job}.{row.task}.{row.number}"
        yield _span(name, category, row.started_at, end, zero, pid, tid) | {"args": arguments}
        for since, until in spans(row.freezes):
            yield _span("frozen", "frozen", since or 0.0, min(until or end, end), zero, pid, tid)
        for phase, since, until in _phases(row, end):
            yield _span(phase, "phase", since, until, zero, pid, tid)


def _phases(row: Any, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield what an attempt did in its slot, where its worker says when it did what: name, begin, end."""
    if row.phases:
        phases = json.loads(row.phases)
        inputs, began = (min(end, row.started_at + phases[name]) for name in ("inputs_s", "began_s"))
        yield "fetch", row.started_at, inputs
        yield "run", began, end


def _holds(held: Sequence[Any], names: Mapping[int, str], pid: int, zero: float, now: float) -> Iterator[Event]:
    if held:
        yield _name("process_name", pid, 0, _HOLDS)
    lanes = _Lanes()
    for job, since, until in map(tuple, held):
        end = max(since, now) if until is None else until
        yield _span(f"job {job}: {names[job]}", "held", since, end, zero, pid, lanes.place(since, end))


class _Lanes:
    """Lanes of one worker that does not say its slots, from 1: each span goes into the first one that is free.

    Spans come in order of start.
    """

    def __init__(self) -> None:
        self._free: list[int] = []  # a heap
        self._busy: list[tuple[float, int]] = []

    def place(self, since: float, until: float) -> int:
        """Return the lane of a span."""
        while self._busy and self._busy[0][0] <= since:
            heappush(self._free, heappop(self._busy)[1])
        lane = heappop(self._free) if self._free else len(self._busy) + 1
        heappush(self._busy, (until, lane))
        return lane


def _span(name: str, category: str, since: float, until: float, zero: float, pid: int, tid: int) -> Event:
    begin, end = round((since - zero) * 1e6), round((until - zero) * 1e6)
    return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": max(0, end - begin), "pid": pid, "tid": tid}


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
