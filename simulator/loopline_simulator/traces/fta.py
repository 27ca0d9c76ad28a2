"""Availability in the Failure Trace Archive's tabbed format: its file ``event_trace.tab``.

Columns are separated by white space: event_id, component_id, node_id, platform_id, node_name, event_type,
event_start_time, event_stop_time, event_end_reason, and perhaps more. Type 1 is available; 0 and all others are not.
Times are seconds since 1970; the earliest one of the file is time 0. Lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from loopline_shared.errors import LooplineError
from loopline_simulator.fast.availability import Interval, merged
from loopline_simulator.traces.files import finite
from loopline_simulator.traces.intervals import TracedMachine

_NODE, _TYPE, _START, _STOP, _LEAST = 2, 5, 6, 7, 8
_AVAILABLE = "1"


def read_event_trace(lines: Iterable[str]) -> dict[str, TracedMachine]:
    """Return the machines by name, in the order of first mention. Raises LooplineError with the line of a mistake.

    A machine that was never available is there, without stays.
    """
    nodes: dict[str, list[Interval]] = {}
    zero = math.inf
    for number, line in enumerate(lines, 1):
        columns = line.split()
        if not columns or line.lstrip().startswith("#"):
            continue
        if len(columns) < _LEAST:
            raise _wrong(number, f"an event has at least {_LEAST} columns; here are {len(columns)}")
        start, stop = _time(number, columns[_START]), _time(number, columns[_STOP])
        if stop < start:
            raise _wrong(number, f"it stops ({columns[_STOP]}) before it starts ({columns[_START]})")
        zero = min(zero, start)
        stays = nodes.setdefault(_name(columns[_NODE]), [])
        if columns[_TYPE] == _AVAILABLE:
            stays.append(Interval(start, stop))
    if not nodes:
        raise LooplineError("trace", "the file has no events", "it should be the archive's event_trace.tab")
    return {
        name: TracedMachine(merged(Interval(stay.start - zero, stay.end - zero) for stay in stays))
        for name, stays in nodes.items()
    }


def _name(node: str) -> str:
    """Return a name for a worker: nodes have numbers, but some files have addresses in their place."""
    return "node-" + re.sub(r"[^A-Za-z0-9._-]", "-", node)


def _time(line: int, text: str) -> float:
    seconds = finite(text)
    if seconds is None:
        raise _wrong(line, f"{text[:40]!r} is not a time")
    return seconds


def _wrong(line: int, what: str) -> LooplineError:
    return LooplineError("trace", f"line {line} is not an event of the Failure Trace Archive: {what}")
