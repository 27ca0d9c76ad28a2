"""The timeline: attempts in a window of time, and the planned starts after it, for drawing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated

from aiohttp import web
from pydantic import Field

from loopline_master.dashboard import columns, trace
from loopline_master.http.answers import json_answer
from loopline_master.http.auth import READERS
from loopline_master.http.lookups import job_view
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import JobNumber, OfOwner, WorkerName
from loopline_master.store import Store
from loopline_master.store.queries.timeline_queries import Chosen, Window
from loopline_shared.rest.bodies import WaitingPlans
from loopline_shared.rest.columns import Timeline, Trace
from loopline_shared.rest.times import Moment

routes = Routes("timeline")

LAST_S = 3600.0
MAX_BARS = 100_000

Since = Annotated[Moment, Field(description="Begin, RFC 3339 or seconds since 1970; else an hour before the end")]
Until = Annotated[Moment, Field(description="End, RFC 3339 or seconds since 1970; else now")]
Bars = Annotated[int, Field(ge=1, le=MAX_BARS, description="At most so many attempts, the latest ones")]


@routes("GET /timeline", READERS, answer=Timeline, is_shared=True)
async def get_timeline(
    store: Store,
    since: Since | None = None,
    until: Until | None = None,
    job: JobNumber | None = None,
    owner: OfOwner | None = None,
    worker: WorkerName | None = None,
    limit: Bars = 10_000,
) -> bytes:
    """Return the attempts in a window of time, in columns, and the times for which last tasks were held."""
    window = await _window(store, since, until, Chosen(job, owner, worker), limit)
    return await asyncio.to_thread(columns.timeline, window)


@routes("GET /plans", READERS, is_shared=True)
async def get_plans(store: Store) -> WaitingPlans:
    """Return the planned starts of the gangs that wait, the earliest first; at most 1,000."""
    return await store.jobs.waiting_plans(time.time())


@routes("GET /timeline/trace", READERS, answer=Trace)
async def get_trace(
    store: Store,
    request: web.Request,
    since: Since | None = None,
    until: Until | None = None,
    job: JobNumber | None = None,
    owner: OfOwner | None = None,
    worker: WorkerName | None = None,
    limit: Bars = 10_000,
) -> web.Response:
    """Return the timeline as Chrome trace-event JSON, for Perfetto or speedscope."""
    window = await _window(store, since, until, Chosen(job, owner, worker), limit)
    return await _trace(request, window, "timeline")


@routes("GET /jobs/{job}/trace", READERS, answer=Trace)
async def get_trace_of_job(store: Store, request: web.Request, job: JobNumber) -> web.Response:
    """Return a job's attempts as Chrome trace-event JSON, for Perfetto or speedscope; of more than 100,000 the
    latest.
    """
    await job_view(store, job)
    window = await _window(store, 0.0, None, Chosen(job), MAX_BARS)
    return await _trace(request, window, f"job-{job}")


async def _window(store: Store, since: float | None, until: float | None, of: Chosen, limit: int) -> Window:
    end = time.time() if until is None else until
    begin = max(0.0, end - LAST_S) if since is None else since
    return await store.timelines.window(begin, end, of=of, limit=limit)


async def _trace(request: web.Request, window: Window, name: str) -> web.Response:
    response = await _answer(request, lambda: trace.trace(window, time.time()))
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.trace.json"'
    return response


async def _answer(request: web.Request, pack: Callable[[], bytes]) -> web.Response:
    """Answer with JSON, encoded in a thread while the master goes on."""
    return await json_answer(request, await asyncio.to_thread(pack))
