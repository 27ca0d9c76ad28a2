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
from loopline_shared.rest.columns import Samples
from loopline_shared.rest.times import Moment

routes = Routes("timeline")

LAST_S = 86400.0

Since = Annotated[Moment, Field(description="Begin, RFC 3339 or seconds since 1970; else a day before the end")]
Until = Annotated[Moment, Field(description="End, RFC 3339 or seconds since 1970; else now")]
Points = Annotated[int, Field(ge=1, le=5000, description="At most so many: of more minutes, means are made")]


@routes("GET /samples", READERS)
async def get_samples(
    store: Store, since: Since | None = None, until: Until | None = None, points: Points = 1000
) -> Samples:
    """Return the CPU that all workers together offered and used, by the minute."""
    return await _between(store, None, since, until, points)


@routes("GET /workers/{worker}/samples", READERS)
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
    end = time.time() if until is None else min(until, float(MAX_ID))
    begin = max(0.0, end - LAST_S) if since is None else min(since, float(MAX_ID))
    return await store.samples.between(begin, end, worker=worker, points=points)
