"""A window of time as Chrome's trace-event JSON (rest.columns.Trace), for Perfetto, speedscope and
chrome://tracing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from pydantic_core import to_json

from loopline_master.dashboard.columns import spans, until_free
from loopline_master.store.queries.timeline_queries import Window
from loopline_shared.model import AttemptState

_HOLDS = "last tasks held"
Event = dict[str, Any]


def trace(window: Window, now: float) -> bytes:
    """Return the trace: a process for each worker, a thread for each slot; running attempts end ``now``.

    Times count from the first event. Attempts that never took a slot, because they were only prefetched, are left
    out.
    """
    begins = [row.started_at for row in _started(window)] + [hold.since for hold in window.held]
    zero = min(begins, default=window.since)
    pids = {name: pid for pid, name in enumerate(sorted({row.worker for row in _started(window)}), start=1)}
    events = [_name("process_name", pid, 0, name) for name, pid in pids.items()]
    events += _attempts(window, pids, zero, now)
    events += _holds(window, len(pids) + 1, zero, now)
    return to_json({"traceEvents": events, "displayTimeUnit": "ms"})


def _started(window: Window) -> list[Any]:
    return sorted((row for row in window.bars if row.started_at is not None), key=lambda row: row.started_at)


def _attempts(window: Window, pids: dict[str, int], zero: float, now: float) -> Iterator[Event]:
    lanes = {name: _Lanes() for name in pids}
    started = _started(window)
    for row, free_at in zip(started, until_free(started), strict=True):
        end = max(row.started_at, now) if free_at is None else free_at
        pid, tid = pids[row.worker], row.slot or lanes[row.worker].place(row.started_at, end)
        arguments = {
            "job": window.names[row.job],
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


def _holds(window: Window, pid: int, zero: float, now: float) -> Iterator[Event]:
    if window.held:
        yield _name("process_name", pid, 0, _HOLDS)
    lanes = _Lanes()
    for job, since, until in map(tuple, window.held):
        end = max(since, now) if until is None else until
        yield _span(f"job {job}: {window.names[job]}", "held", since, end, zero, pid, lanes.place(since, end))


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
