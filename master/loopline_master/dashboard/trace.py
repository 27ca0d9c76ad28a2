"""A window of time as Chrome's trace-event JSON (rest.columns.Trace), for Perfetto, speedscope and
chrome://tracing.

A long trace has half a million events. So each is written as text at once, in place of an object that is encoded
later, and the phases of an attempt are parsed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from pydantic_core import to_json

from loopline_master.dashboard.columns import Ends, own_end, phases_of, spans
from loopline_master.store.queries.timeline_queries import Bar, Window
from loopline_shared.model import AttemptState

_HOLDS = "last tasks held"
_FLAGS = ("false", "true")
Event = str
"""The JSON of an event."""


def trace(window: Window, now: float) -> bytes:
    """Return the trace: a process for each worker, a thread for each slot; running attempts end ``now``.

    Times count from the first event. Attempts that never took a slot, because they were only prefetched, are left
    out.
    """
    times = [(bar.started_at, place) for place, bar in enumerate(window.bars) if bar.started_at is not None]
    begins = [began_at for began_at, _ in times] + [hold.since for hold in window.held]
    started = [window.bars[place] for _, place in sorted(times)]
    tracing = Tracing({bar.worker for bar in started}, window.names, min(begins, default=window.since), now)
    events = [*tracing.begin(), *tracing.add(started), *tracing.end(window.held)]
    return BEGIN + packed(events) + END


BEGIN, END = b'{"traceEvents":[', b'],"displayTimeUnit":"ms"}'


def packed(events: Iterable[Event]) -> bytes:
    """Return events as they stand in the list of a trace, without its brackets."""
    return ",".join(events).encode()


class Tracing:
    """Makes the events of a trace from attempts in order of their start, keeping one for each slot."""

    def __init__(self, workers: Collection[str], names: Mapping[int, str], zero: float, now: float) -> None:
        self._names, self._zero, self._now = {job: _json(name) for job, name in names.items()}, zero, now
        self._pids = {name: pid for pid, name in enumerate(sorted(workers), start=1)}
        self._lanes = {name: _Lanes() for name in workers}
        self._latest: dict[tuple[str, int], tuple[Bar, Ends]] = {}  # with its phases

    def begin(self) -> Iterator[Event]:
        """Yield the names of the processes."""
        yield from (_name("process_name", pid, 0, name) for name, pid in self._pids.items())

    def add(self, started: Iterable[Bar]) -> Iterator[Event]:
        """Yield the events of attempts that end before others begin in their slots."""
        for bar in started:
            assert bar.started_at is not None
            phases = phases_of(bar)
            if not bar.slot:
                yield from self._attempt(bar, phases, own_end(bar, phases))
                continue
            slot = bar.worker, bar.slot
            before = self._latest.get(slot)
            self._latest[slot] = bar, phases
            if before is not None:
                end = own_end(*before)
                yield from self._attempt(*before, None if end is None else min(end, bar.started_at))

    def end(self, held: Sequence[Any]) -> Iterator[Event]:
        """Yield the events of the last attempt in each slot, and of periods when last tasks were held."""
        for bar, phases in self._latest.values():
            yield from self._attempt(bar, phases, own_end(bar, phases))
        yield from _holds(held, self._names, len(self._pids) + 1, self._zero, self._now)

    def _attempt(self, bar: Bar, phases: Ends, free_at: float | None) -> Iterator[Event]:
        started_at, zero = bar.started_at or 0.0, self._zero
        end = max(started_at, self._now) if free_at is None else free_at
        pid, tid = self._pids[bar.worker], bar.slot or self._lanes[bar.worker].place(started_at, end)
        name, category = f'"{bar.job}.{bar.task}.{bar.number}"', "replica" if bar.replica else "attempt"
        yield _span(name, category, started_at, end, zero, pid, tid, self._arguments(bar, phases, end))
        for since, until in spans(bar.freezes):
            yield _span('"frozen"', "frozen", since or 0.0, min(until or end, end), zero, pid, tid)
        if phases:  # the phases within its slot, if its worker reports them
            inputs, began = min(end, started_at + phases["inputs_s"]), min(end, started_at + phases["began_s"])
            yield _span('"fetch"', "phase", started_at, inputs, zero, pid, tid)
            yield _span('"run"', "phase", began, end, zero, pid, tid)

    def _arguments(self, bar: Bar, phases: Ends, end: float) -> str:
        """Return the arguments of an attempt's event, as JSON."""
        upload = lost = ""
        if phases and bar.ended_at is not None:
            upload = f',"upload_s":{round(max(0.0, bar.ended_at - end), 3)}'
        if bar.state == AttemptState.LOST and bar.ended_at is None:
            lost = ',"end":"not known: it may come back"'
        replica, accepted = _FLAGS[bool(bar.replica)], _FLAGS[bool(bar.accepted)]
        known = f'"state":"{bar.state}","replica":{replica},"accepted":{accepted}'
        return f',"args":{{"job":{self._names[bar.job]},{known}{upload}{lost}}}'


def _holds(held: Sequence[Any], names: Mapping[int, str], pid: int, zero: float, now: float) -> Iterator[Event]:
    if held:
        yield _name("process_name", pid, 0, _HOLDS)
    lanes = _Lanes()
    for job, since, until in map(tuple, held):
        end = max(since, now) if until is None else until
        yield _span(f'"job {job}: {names[job][1:]}', "held", since, end, zero, pid, lanes.place(since, end))


class _Lanes:
    """Lanes of one worker that does not say its slots, from 1: each span uses the first free one.

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


def _span(
    name: str, category: str, since: float, until: float, zero: float, pid: int, tid: int, more: str = ""
) -> Event:
    """``name`` is JSON; ``more``: the other fields of its event."""
    begin, end = round((since - zero) * 1e6), round((until - zero) * 1e6)
    where = f'"ts":{begin},"dur":{max(0, end - begin)},"pid":{pid},"tid":{tid}'
    return f'{{"name":{name},"cat":"{category}","ph":"X",{where}{more}}}'


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return f'{{"name":"{what}","ph":"M","pid":{pid},"tid":{tid},"args":{{"name":{_json(name)}}}}}'


def _json(text: str) -> str:
    return to_json(text).decode()
