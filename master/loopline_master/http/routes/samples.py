"""Samples of workers over time: the spare CPU of the grid, and how much of it was used."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from loopline_master.http.auth import READERS
from loopline_master.http.lookups import found
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import WorkerName
from loopline_master.store import Store
from loopline_shared.model import MAX_ID
from loopline_shared.rest.columns import Samples, WorkerSamples
from loopline_shared.rest.times import Moment

routes = Routes("timeline")

LAST_S = 86400.0
LAST_HOUR_S = 3600.0

Since = Annotated[Moment, Field(description="Start, RFC 3339 or seconds since 1970; default: a day before the end")]
SinceAnHour = Annotated[
    Moment, Field(description="Start, RFC 3339 or seconds since 1970; default: an hour before the end")
]
Until = Annotated[Moment, Field(description="End, RFC 3339 or seconds since 1970; default: now")]
Points = Annotated[int, Field(ge=1, le=5000, description="The most points; longer spans are averaged")]
FewPoints = Annotated[int, Field(ge=1, le=120, description="The most points of each worker")]


@routes("GET /samples", READERS, is_shared=True)
async def get_samples(
    store: Store, since: Since | None = None, until: Until | None = None, points: Points = 1000
) -> Samples:
    """Return the CPU that all workers together offered and used, by the minute."""
    return await _between(store, None, since, until, points)


@routes("GET /samples/by-worker", READERS, is_shared=True)
async def get_samples_by_worker(
    store: Store, since: SinceAnHour | None = None, until: Until | None = None, points: FewPoints = 30
) -> WorkerSamples:
    """Return the CPU that each worker offered and used, for a small chart of each."""
    begin, end = _span(since, until, LAST_HOUR_S)
    return await store.samples.by_worker(begin, end, points=points)


@routes("GET /workers/{worker}/samples", READERS, is_shared=True)
async def get_samples_of_worker(
    store: Store,
    worker: WorkerName,
    since: Since | None = None,
    until: Until | None = None,
    points: Points = 1000,
) -> Samples:
    """Return the CPU that one worker offered and used, by the minute."""
    found(await store.workers.detail(worker), f"worker {worker}")
    return await _between(store, worker, since, until, points)


async def _between(
    store: Store, worker: str | None, since: float | None, until: float | None, points: int
) -> Samples:
    begin, end = _span(since, until, LAST_S)
    return await store.samples.between(begin, end, worker=worker, points=points)


def _span(since: float | None, until: float | None, usual_s: float) -> tuple[float, float]:
    """Return start and end; by default the end is now and the start is ``usual_s`` earlier."""
    end = time.time() if until is None else min(until, float(MAX_ID))
    return max(0.0, end - usual_s) if since is None else min(since, float(MAX_ID)), end
