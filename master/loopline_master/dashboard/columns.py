"""A window of time as a rest.columns.Timeline, encoded by hand: pydantic would take far longer for 50,000 bars."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from loopline_master.store.queries.timeline_queries import Window
from loopline_shared.model import AttemptState

_COLUMNS = 11
_NEVER = "[]"


def timeline(window: Window) -> bytes:
    """Return the window as JSON, with times to the millisecond."""
    columns = list(zip(*window.bars, strict=True)) or [()] * _COLUMNS
    job, task, number, worker, state, replica, accepted, dispatched, start, end, freezes = columns
    workers = {name: place for place, name in enumerate(sorted(set(worker)))}
    jobs = {id_: place for place, id_ in enumerate(window.names)}
    bars = {
        "attempt": [f"{a}.{b}.{c}" for a, b, c in zip(job, task, number, strict=True)],
        "worker": [workers[name] for name in worker],
        "job": [jobs[id_] for id_ in job],
        "state": [AttemptState(text).without_phase for text in state],
        "replica": [int(flag) for flag in replica],
        "accepted": [int(flag) for flag in accepted],
        "dispatched": _ms(dispatched),
        "start": _ms(start),
        "end": _ms(end),
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


def spans(freezes: str) -> list[list[float | None]]:
    """Return the periods during which an attempt was frozen."""
    return [_ms(span) for span in json.loads(freezes)]


def _ms(times: Iterable[Any]) -> list[float | None]:
    return [None if time is None else round(time, 3) for time in times]
