"""Answers that go on for as long as there is news: the results of a job, and what changes in the grid.

Both first subscribe, then read, then wait, so that nothing slips by; both rest a little between two looks, so that
a busy grid costs no more than a slow one; both say something now and then, so that nobody takes them for dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from master.api.operations import Routes
from master.api.parameters import Follow, JobNumber, RestSeconds, ResultCursor
from master.api.services import Services, found
from master.auth import READERS
from master.engine import Subscription
from master.store.results import CHUNK
from shared.api import GridChange, TaskResult
from shared.model import Output

routes = Routes("streams")

STILL_HERE_EVERY_S = 15.0
REST_S = 0.1
REST_SHARE = 4.0
"""After a look that found something, it rests for so many times as long as that took, and for REST_S at most."""
MAX_STDOUT_BYTES = 64 * 1024  # of each result in the stream; a task's stdout has it all
_NDJSON, _SSE = "application/x-ndjson", "text/event-stream"


@routes("GET /jobs/{job}/results", READERS, media_type=_NDJSON, item=TaskResult, declines=(503,))
async def stream_results(
    services: Services,
    request: web.Request,
    job: JobNumber,
    cursor: ResultCursor | None = None,
    follow: Follow = True,
) -> web.StreamResponse:
    """Results of a job's tasks as they finish: a TaskResult a line, until the job has ended.

    Lines may be empty: they say that the master is still there.
    """
    with services.listeners.seat():
        async with aclosing(_results(services, job, cursor, follow)) as lines:
            first = await anext(lines)  # or there is no such job
            response = await _begin(request, _NDJSON)
            with suppress(ConnectionError):  # nobody reads any more
                await response.write(first)
                async for some in lines:
                    await response.write(some)
    return response


@routes("GET /events", READERS, media_type=_SSE, item=GridChange, declines=(503,))
async def stream_events(services: Services, request: web.Request, rest_s: RestSeconds = REST_S) -> web.StreamResponse:
    """Server-sent events: the numbers and names of jobs and workers that have changed, a GridChange each.

    The first one says `missed`: look at everything once, then at what is named.
    """
    with services.listeners.seat(), services.engine.news.subscribe() as news:
        response = await _begin(request, _SSE)
        await response.write(b"retry: 1000\n" + _event(GridChange(missed=True)))
        while True:
            try:
                async with asyncio.timeout(STILL_HERE_EVERY_S):
                    change = await news.next()
            except TimeoutError:
                await response.write(b": still here\n\n")
            else:
                named = GridChange(jobs=list(change.jobs), workers=list(change.workers), missed=change.missed)
                await response.write(_event(named))
                await asyncio.sleep(rest_s)


async def _begin(request: web.Request, media_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": media_type, "Cache-Control": "no-store"})
    await response.prepare(request)
    return response


async def _results(services: Services, job: int, cursor: str | None, follow: bool) -> AsyncGenerator[bytes, None]:
    async def beginning_of(output: Output) -> bytes:
        if output.sha256 is None:
            return output.data[:MAX_STDOUT_BYTES]
        return await asyncio.to_thread(services.blobs.read, output, MAX_STDOUT_BYTES)

    results = services.store.results.of_job(job, beginning_of, cursor=cursor, lines=services.rows.rows)
    with services.engine.news.subscribe() as news:
        while True:
            began, some = time.monotonic(), await results.next()
            found(None if results.is_unknown else results, f"job {job}")
            yield b"".join(_line(result, after) for after, result in some)
            if results.is_over or not (follow or some):
                return
            if follow and 0 < len(some) < CHUNK:
                await asyncio.sleep(min(REST_S, REST_SHARE * (time.monotonic() - began)))
            elif not some and not await has_changed(news, job, STILL_HERE_EVERY_S):
                yield b"\n"


async def has_changed(news: Subscription, job: int, within_s: float) -> bool:
    """Wait for news of a job; False: there was none within that time."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                change = await news.next()
                if job in change.jobs or change.missed:
                    return True
    except TimeoutError:
        return False


def _line(result: TaskResult, cursor: str) -> bytes:
    return result.model_copy(update={"cursor": cursor}).model_dump_json().encode() + b"\n"


def _event(change: GridChange) -> bytes:
    return b"event: change\ndata: " + change.model_dump_json().encode() + b"\n\n"
