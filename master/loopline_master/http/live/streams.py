"""Long-lived streams: the results of a job, and the changes in the grid.

Both subscribe first, then read, then wait, so that they miss nothing. Both pause between two reads, so that a busy
grid costs no more than a slow one. Both send something at intervals, so that proxies and clients do not time out.
Results are sent as they are committed, mostly without reading from disk (change_feed.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from loopline_master.change_feed import Change, ChangeFeed, Subscription, Subscriptions, starts_from_zero, written
from loopline_master.core.kernel.entities import Attempt, Job, Task
from loopline_master.core.scheduler import Scheduler
from loopline_master.http.answers import begin_stream, preferred
from loopline_master.http.auth import READERS, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.live.stored_results import MAX_STDOUT_BYTES, Piece, StoredResults, line, lines
from loopline_master.http.lookups import found
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import AfterEvent, Follow, JobNumber, LastEventId, RestSeconds, ResultCursor
from loopline_master.store.queries.attempt_queries import why_failed
from loopline_master.store.queries.result_queries import CHUNK
from loopline_master.timings import (
    ANSWER_WITHIN_S,
    CHANGES_STILL_HERE_EVERY_S,
    STILL_HERE_EVERY_S,
    STREAM_REST_S,
    STREAM_REST_SHARE,
    STREAM_WRITE_S,
)
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import JobState, Output
from loopline_shared.rest.bodies import GridChange, TaskResult

routes = Routes("streams")

MOST_READY_BYTES = 2**20
"""Results queued for a slow reader; beyond it, the rest is read from disk."""
_NDJSON, _SSE = "application/x-ndjson", "text/event-stream"


@routes(
    "GET /jobs/{job}/results",
    READERS,
    media_type=_NDJSON,
    also="text/plain",
    item=TaskResult,
    declines=(429, 503),
    is_frequent=True,
)
async def stream_results(
    followed: FollowedResults,
    stored: StoredResults,
    streams: OpenStreams,
    caller: Caller,
    request: web.Request,
    job: JobNumber,
    cursor: ResultCursor | None = None,
    follow: Follow = True,
) -> web.StreamResponse:
    """Stream the results of a job's tasks as they finish: a TaskResult on each line, until the job has ended.

    Empty lines show that the master is still there.
    """
    with streams.seat(caller):
        source = followed if follow else stored
        async with aclosing(source.pieces(job, cursor)) as pieces:
            first, is_all = await anext(pieces)  # raises if there is no such job
            media_type = preferred(request, _NDJSON, "text/plain")
            if is_all and request.method != "HEAD":  # in one packet, which wakes its reader once
                return web.Response(body=first, headers={"Content-Type": media_type})
            response = await _begin(request, media_type)
            if request.method == "HEAD":
                return response
            with suppress(ConnectionError):  # the reader has disconnected
                await response.write(first)
                async for some, _ in pieces:
                    await response.write(some)
    return response


@routes("GET /events", READERS, media_type=_SSE, item=GridChange, declines=(429, 503))
async def stream_events(
    changes: ChangeFeed,
    streams: OpenStreams,
    caller: Caller,
    request: web.Request,
    rest_s: RestSeconds = STREAM_REST_S,
    last_event_id: LastEventId = "",
    after: AfterEvent = "",
) -> web.StreamResponse:
    """Stream the names of jobs and workers that have changed, as server-sent events: a GridChange each.

    The first event says `missed`: read everything once, then only the named jobs and workers. A client that
    reconnects with the id of its last event gets the changes since then, or `missed` if that was too long ago or the
    master was restarted. After five seconds without an event, an event `here` is sent.
    """
    with streams.seat(caller), changes.read() as reader:
        first, at = changes.since(last_event_id or after), changes.mark
        response = await _begin(request, _SSE)
        if request.method == "HEAD":
            return response
        await response.write(b"retry: 1000\n" + _event(first, at))
        while True:
            try:
                async with asyncio.timeout(CHANGES_STILL_HERE_EVERY_S):
                    change = await reader.next()
            except TimeoutError:
                await response.write(b"event: here\ndata: {}\n\n")
            else:
                await response.write(_event(change, changes.mark))
                await asyncio.sleep(_until_next(rest_s))


async def _begin(request: web.Request, media_type: str) -> web.StreamResponse:
    return await begin_stream(request, {"Content-Type": media_type, "Cache-Control": "no-store"})


class FollowedResults:
    """Sends results of jobs as they are committed."""

    def __init__(self, stored: StoredResults, subscriptions: Subscriptions, scheduler: Scheduler) -> None:
        self.stored, self.subscriptions, self.scheduler = stored, subscriptions, scheduler
        self._latest: tuple[list[TaskResult], bytes] = [], b""

    def pieces(self, job: int, cursor: str | None) -> AsyncGenerator[Piece, None]:
        """Generate lines in batches until the job has ended; an empty line at intervals if there are none."""
        return _ResultFollower(self, job, cursor).pieces()

    async def at_once(self, job: int) -> list[TaskResult] | None:
        """Return all results of a job that was just submitted; None if it does not end within a moment."""
        if not starts_from_zero(self.scheduler.state, job):
            return None
        results, is_over, woken = list[TaskResult](), False, asyncio.Event()

        def put(_: Subscription[TaskResult], some: list[TaskResult], over: JobState | None) -> bool:
            nonlocal is_over
            results.extend(some)
            if over is not None:
                is_over = True
                woken.set()
            return sum(len(one.stdout) for one in results) < MOST_READY_BYTES

        subscription = Subscription(
            job=job, put=put, on_behind=lambda _: woken.set(), end_of=_result_of, is_live=True
        )
        self.subscriptions.open(subscription)
        alarm = asyncio.get_running_loop().call_later(ANSWER_WITHIN_S, woken.set)
        try:
            await woken.wait()
        finally:
            alarm.cancel()
            self.subscriptions.close(subscription)
        return results if is_over and subscription.is_live else None

    def written(self, results: list[TaskResult]) -> bytes:
        """Return the lines of results. Those of one commit are encoded once for all followers."""
        if self._latest[0] is not results:
            self._latest = results, b"".join(map(line, results))
        return self._latest[1]


class _ResultFollower:
    """Follows one job: takes results from commits, and reads incomplete ones from disk."""

    def __init__(self, of: FollowedResults, job: int, cursor: str | None) -> None:
        self._of = of
        self._subscriptions = of.subscriptions
        self._results = of.stored.of_job(job, cursor)
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._is_over = False
        self._woken = asyncio.Event()
        is_live = cursor is None and starts_from_zero(of.scheduler.state, job)
        self._subscription = Subscription(
            job=job,
            put=self._queue,
            on_behind=self._fell_behind,
            end_of=_result_of,
            cursor=self._results.last,
            is_live=is_live,
        )

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Generate lines until the job has ended. The first piece comes soon, and may be all or empty."""
        self._subscriptions.open(self._subscription)
        try:
            if self._subscription.is_live and not await self._is_woken(ANSWER_WITHIN_S):
                yield b"", False
            while not self._is_over:
                if self._ready:
                    yield self._all_ready(), False
                    await asyncio.sleep(self._subscriptions.count * STREAM_WRITE_S)
                elif not self._subscription.is_live:
                    began = time.monotonic()
                    read = await self._read_on()
                    if self._is_over:
                        self._ready.append(lines(read))
                        break
                    yield lines(read), False
                    if 0 < len(read) < CHUNK:
                        await asyncio.sleep(min(STREAM_REST_S, STREAM_REST_SHARE * (time.monotonic() - began)))
                elif not await self._is_woken(STILL_HERE_EVERY_S):
                    yield b"\n", False
            yield self._all_ready(), True
        finally:
            self._subscriptions.close(self._subscription)

    def _queue(self, _: Subscription[TaskResult], results: list[TaskResult], over: JobState | None) -> bool:
        """Queue the results of a commit. Returns True if there is room for more."""
        lines = self._of.written(results)
        self._ready.append(lines)
        self._ready_bytes += len(lines)
        self._is_over = over is not None
        self._woken.set()
        return self._ready_bytes < MOST_READY_BYTES

    def _all_ready(self) -> bytes:
        lines, self._ready, self._ready_bytes = b"".join(self._ready), [], 0
        return lines

    def _fell_behind(self, _: Subscription[TaskResult]) -> None:
        self._woken.set()

    async def _is_woken(self, within_s: float) -> bool:
        """Wait for something to send; False if there was nothing within ``within_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._woken.wait()
        is_woken = self._woken.is_set()
        self._woken.clear()
        return is_woken

    async def _read_on(self) -> list[tuple[str, TaskResult]]:
        """Read from disk; the subscription is live again once nothing is left unread."""
        subscription, results = self._subscription, self._results
        subscription.is_stirred, results.last = False, subscription.cursor
        read = await results.next()
        found(None if results.is_unknown else results, f"job {subscription.job}")
        subscription.cursor, self._is_over = results.last, results.is_over
        subscription.is_live = len(read) < CHUNK and not subscription.is_stirred
        return read


def _result_of(job: Job | None, task: Task, attempt: Attempt) -> TaskResult | None:
    """Return the result as the store would return it; None if its parameters or its output are in a file."""
    stdout = attempt.stdout or Output()
    if job is None or isinstance(job.spec.parameters, RowFile) or stdout.sha256 is not None:
        return None
    assert task.finished_at is not None
    data = stdout.data[:MAX_STDOUT_BYTES]
    return TaskResult(
        id=task.id,
        number=task.number,
        state=task.state,
        failures=task.failures,
        started_at=task.started_at,
        finished_at=task.finished_at,
        worker=attempt.worker,
        exit_code=attempt.exit_code,
        reason=task.verdict or attempt.reason or why_failed(attempt.state, attempt.exit_code),
        mismatch=task.mismatch,
        began_at=attempt.started_at,
        wall_s=None if attempt.ended_at is None else attempt.wall_s,
        parameters=job.sweep.parameters_at(task.number),
        metrics=attempt.metrics,
        stdout=data.decode(errors="replace"),
        stdout_cut=stdout.cut or len(data) < stdout.size_bytes,
        value=attempt.value,
        cursor=written((task.finished_at, task.number)),
    )


def _until_next(tick_s: float) -> float:
    """Return the time until the next tick, which all streams share so that viewers' requests coincide."""
    return tick_s - time.monotonic() % tick_s


def _event(change: Change, mark: str) -> bytes:
    """Return the event of a change, whose id is the mark after it."""
    named = GridChange(jobs=list(change.jobs), workers=list(change.workers), missed=change.missed)
    return f"id: {mark}\nevent: change\ndata: {named.model_dump_json()}\n\n".encode()
