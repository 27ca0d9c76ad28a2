"""The timeline: attempts in a window of time, and the planned starts after it, for drawing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Annotated

from aiohttp import web
from pydantic import Field

from loopline_master.dashboard import columns, trace
from loopline_master.http.answers import JSON, Zipping, begin_stream, json_answer, takes_gzip
from loopline_master.http.auth import READERS, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.lookups import job_view
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import JobNumber, OfUser, WorkerName
from loopline_master.store import Store
from loopline_master.store.queries.timeline_queries import Chosen, Window
from loopline_shared.rest.bodies import WaitingPlans
from loopline_shared.rest.columns import Timeline, Trace
from loopline_shared.rest.times import Moment

routes = Routes("timeline")

LAST_S = 3600.0
MAX_BARS = 100_000
_TRACED_AT_ONCE = 2_000

Since = Annotated[Moment, Field(description="Start, RFC 3339 or seconds since 1970; default: an hour before the end")]
Until = Annotated[Moment, Field(description="End, RFC 3339 or seconds since 1970; default: now")]
Bars = Annotated[int, Field(ge=1, le=MAX_BARS, description="The most attempts, latest ones first")]


@routes("GET /timeline", READERS, answer=Timeline, is_shared=True)
async def get_timeline(
    store: Store,
    since: Since | None = None,
    until: Until | None = None,
    job: JobNumber | None = None,
    user: OfUser | None = None,
    worker: WorkerName | None = None,
    limit: Bars = 10_000,
) -> bytes:
    """Return the attempts in a window of time, in columns, and the times in which last tasks were held."""
    window = await _window(store, since, until, Chosen(job, user, worker), limit)
    return await asyncio.to_thread(columns.timeline, window)


@routes("GET /plans", READERS, is_shared=True)
async def get_plans(store: Store) -> WaitingPlans:
    """Return at most 1,000 planned starts of waiting gangs, earliest first."""
    return await store.jobs.waiting_plans(time.time())


@routes("GET /timeline/trace", READERS, answer=Trace)
async def get_trace(
    store: Store,
    request: web.Request,
    since: Since | None = None,
    until: Until | None = None,
    job: JobNumber | None = None,
    user: OfUser | None = None,
    worker: WorkerName | None = None,
    limit: Bars = 10_000,
) -> web.Response:
    """Return the timeline as Chrome trace-event JSON, for Perfetto or speedscope."""
    window = await _window(store, since, until, Chosen(job, user, worker), limit)
    return await _trace(request, window, "timeline")


@routes("GET /jobs/{job}/trace", READERS, answer=Trace, declines=(429, 503))
async def get_trace_of_job(
    store: Store, streams: OpenStreams, caller: Caller, request: web.Request, job: JobNumber
) -> web.StreamResponse:
    """Stream a job's latest 100,000 attempts as Chrome trace-event JSON, for Perfetto or speedscope."""
    await job_view(store, job)
    with streams.seat(caller):
        zipping = Zipping() if takes_gzip(request) else None
        headers = {"Content-Type": JSON, "Vary": "Accept-Encoding", **_attached(f"job-{job}")}
        response = await begin_stream(request, headers | ({"Content-Encoding": "gzip"} if zipping else {}))
        if request.method != "HEAD":
            async with aclosing(_pieces_of_trace(store, job, zipping)) as pieces:
                async for piece in pieces:
                    await response.write(piece)
    return response


async def _pieces_of_trace(store: Store, job: int, zipping: Zipping | None) -> AsyncGenerator[bytes]:
    """Yield the bytes of a job's trace in pieces, so that never all events are in memory."""

    def sent(piece: bytes) -> bytes:
        return zipping.add(piece) if zipping else piece

    yield sent(trace.BEGIN)
    comma = b""
    async with aclosing(_lists_of_events(store, job)) as lists:
        async for events in lists:
            if piece := await asyncio.to_thread(lambda: trace.packed(events)):  # noqa: B023 waited for
                yield await asyncio.to_thread(sent, comma + piece)
                comma = b","
    yield sent(trace.END) + (zipping.end() if zipping else b"")


async def _lists_of_events(store: Store, job: int) -> AsyncGenerator[Iterable[trace.Event]]:
    """Yield the events of a job's trace in batches of attempts; each iterable is consumed in another thread."""
    now = time.time()
    begun = await store.timelines.begun(job, now, MAX_BARS)
    zero = min([begun.first_at or now, *(hold.since for hold in begun.held)])
    tracing = trace.Tracing(begun.workers, {job: begun.name}, zero, now)
    yield tracing.begin()
    for part in begun.parts(_TRACED_AT_ONCE):
        found = await store.timelines.bars_of(job, {task for task, _ in part}, _TRACED_AT_ONCE)
        bars = {(bar.task, bar.number): bar for bar in found}
        yield tracing.add(bars[key] for key in part if key in bars)
    yield tracing.end(begun.held)


async def _window(store: Store, since: float | None, until: float | None, of: Chosen, limit: int) -> Window:
    end = time.time() if until is None else until
    begin = max(0.0, end - LAST_S) if since is None else since
    return await store.timelines.window(begin, end, of=of, limit=limit)


async def _trace(request: web.Request, window: Window, name: str) -> web.Response:
    response = await _answer(request, lambda: trace.trace(window, time.time()))
    response.headers.update(_attached(name))
    return response


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}.trace.json"'}


async def _answer(request: web.Request, pack: Callable[[], bytes]) -> web.Response:
    """Answer with JSON that is encoded in a thread."""
    return await json_answer(request, await asyncio.to_thread(pack))
