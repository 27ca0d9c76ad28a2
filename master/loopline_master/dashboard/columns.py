"""Bodies of rest.columns, encoded by hand: pydantic would take far longer for 50,000 bars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Row

from loopline_master.core.kernel.entities import UNSEATED
from loopline_master.store.queries.attempt_queries import why_failed
from loopline_master.store.queries.task_queries import SweepTasks
from loopline_master.store.queries.timeline_queries import Bar, Window
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import TaskState
from loopline_shared.protocol.templates import number_of
from loopline_shared.scalar import Scalar
from loopline_shared.sweep import Sweep

_COLUMNS = 14
_NEVER = "[]"
Ends = dict[str, float] | None
"""The fields of model.Phases, of an attempt whose worker says them."""


def timeline(window: Window) -> bytes:
    """Return the window as JSON, with times to the millisecond."""
    columns = list(zip(*window.bars, strict=True)) or [()] * _COLUMNS
    job, task, number, worker, state, replica, accepted, dispatched = columns[:8]
    start, told, wall, freezes, slot = columns[8:13]
    phases = [phases_of(bar) for bar in window.bars]
    workers = {name: place for place, name in enumerate(sorted(set(worker)))}
    jobs = {id_: place for place, id_ in enumerate(window.names)}
    bars = {
        "attempt": [f"{a}.{b}.{c}" for a, b, c in zip(job, task, number, strict=True)],
        "worker": [workers[name] for name in worker],
        "job": [jobs[id_] for id_ in job],
        "state": state,
        "replica": [int(flag) for flag in replica],
        "accepted": [int(flag) for flag in accepted],
        "dispatched": _ms(dispatched),
        "start": _ms(start),
        "end": _ms(until_free(window.bars, phases)),
        "ended": _ms(told),
        "slot": [number or None for number in slot],
        "began": [each and round(each["began_s"], 3) for each in phases],
        "ran": [round(wall_s, 3) if wall_s else None for wall_s in wall],
        "frozen": [None if text == _NEVER else spans(text) for text in freezes],
    }
    whole = {
        "since": window.since,
        "until": window.until,
        "truncated": window.truncated,
        "workers": list(workers),
        "jobs": [{"id": id_, "name": name} for id_, name in window.names.items()],
        "bars": bars,
        "held": [{"job": id_, "since": since, "until": until} for id_, since, until in map(tuple, window.held)],
    }
    return to_json(whole)


def until_free(bars: Sequence[Bar], phases: Sequence[Ends]) -> list[float | None]:
    """Return when each attempt left its slot, as far as is known; None if it still has it.

    The end of its last process, where its worker says when that was, else when its result came; and in no case longer
    than until the next attempt began in the same slot.
    """
    ends: list[float | None] = [own_end(*each) for each in zip(bars, phases, strict=True)]
    latest: dict[tuple[str, int], int] = {}  # place of the last one of each slot
    for place in sorted((at for at, bar in enumerate(bars) if bar.started_at and bar.slot), key=_start_of(bars)):
        bar = bars[place]
        before = latest.get((bar.worker, bar.slot))
        if before is not None and (end := ends[before]) is not None:
            ends[before] = min(end, bar.started_at or 0.0)
        latest[bar.worker, bar.slot] = place
    return ends


def phases_of(bar: Bar) -> Ends:
    """Return when the phases of an attempt were over, if its worker says so."""
    return json.loads(bar.phases) if bar.phases else None


def own_end(bar: Bar, phases: Ends) -> float | None:
    """Return when an attempt left its slot, from its own row; None if it still has it."""
    if not phases or bar.started_at is None or bar.ended_at is None:
        return bar.ended_at
    return min(bar.ended_at, bar.started_at + phases["ended_s"])


def _start_of(bars: Sequence[Bar]) -> Callable[[int], float]:
    return lambda place: bars[place].started_at or 0.0


def sweep(tasks: SweepTasks) -> bytes:
    """Return the tasks as JSON of a SweepColumns, with times to the millisecond."""
    numbers = range(1, tasks.count + 1)
    rows = [tasks.rows.get(number) for number in numbers]
    if isinstance(tasks.spec.parameters, RowFile):
        parameters = _by_name(tasks.lines.get(number, {}) for number in numbers)
    else:
        parameters = _by_name(map(Sweep(tasks.spec).parameters_at, numbers))
    whole = {
        "truncated": tasks.truncated,
        "number": list(numbers),
        "state": [row.state if row else tasks.absent for row in rows],
        "prefetched": [int(_is_prefetched(row)) for row in rows],
        "worker": [row and row.worker for row in rows],
        "began": _ms(row and row.started_at for row in rows),
        "wall_s": _ms(row.wall_s if row and row.ended_at is not None else None for row in rows),
        "exit_code": [row and row.exit_code for row in rows],
        "failures": [row.failures if row else 0 for row in rows],
        "reason": [_reason(row) for row in rows],
        "parameters": {name: [_number(value) for value in column] for name, column in parameters.items()},
        "metrics": _by_name((row and row.metrics) or {} for row in rows),
    }
    return to_json(whole)


def spans(freezes: str) -> list[list[float | None]]:
    """Return the periods during which an attempt was frozen."""
    return [] if freezes == _NEVER else [_ms(span) for span in json.loads(freezes)]


def _ms(times: Iterable[Any]) -> list[float | None]:
    return [None if time is None else round(time, 3) for time in times]


def _is_prefetched(row: Row[Any] | None) -> bool:
    return row is not None and row.state is TaskState.RUNNING and row.attempt_state in UNSEATED


def _reason(row: Row[Any] | None) -> str:
    """Return why a task failed, or why its last attempt did."""
    if row is None:
        return ""
    return row.verdict or row.reason or why_failed(row.attempt_state, row.exit_code)


def _number(value: Scalar | None) -> Scalar | None:
    return value if value is None else number_of(value)


def _by_name(values: Iterable[Mapping[str, Scalar]]) -> dict[str, list[Scalar | None]]:
    """Return a column for each name that occurs."""
    lines = list(values)
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [line.get(name) for line in lines] for name in names}
