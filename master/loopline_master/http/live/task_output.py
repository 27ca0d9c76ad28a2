"""Output of a task while it is written: read through its worker's link, and from disk once the task is over.

Several attempts may write, and only one of them counts. The reader sees one at a time; when another replaces it, a
line says so, and its output follows from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from loopline_master.change_feed import ChangeFeed, ChangeReader
from loopline_master.files.blobs import Blobs
from loopline_master.files.retained import RetainedFiles
from loopline_master.http.answers import begin_stream
from loopline_master.http.auth import Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.lookups import found
from loopline_master.links import WorkerLinks
from loopline_master.store import Store
from loopline_master.timings import OUTPUT_LOOK_AGAIN_S, STREAM_REST_S
from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptState, Stream, TaskId
from loopline_shared.rest.bodies import AttemptView, TaskDetail

_PIECE_BYTES = 2**18


class TaskOutput:
    """Output of tasks on stdout and stderr: stored, or followed while it is written."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        *,
        files: RetainedFiles,
        links: WorkerLinks,
        changes: ChangeFeed,
        streams: OpenStreams,
    ) -> None:
        self.store, self.blobs, self.files = store, blobs, files
        self.links, self.changes, self.streams = links, changes, streams

    async def answer(
        self, request: web.Request, caller: Caller, task: TaskId, *, stream: Stream, is_followed: bool, rank: int = 0
    ) -> web.StreamResponse:
        """Answer with the output as it was written; of a gang, that of the member with this rank.

        The declared UTF-8 is a guess.
        """
        if not is_followed:
            return await self._stored(task, stream, rank)
        with self.streams.seat(caller):
            return await self._follow(request, task, stream, rank)

    async def _stored(self, task: TaskId, stream: Stream, rank: int) -> web.StreamResponse:
        written = await self.store.attempts.output(task, stream, rank)
        if written is None:
            hint = "there is output once an attempt has ended; `loopline explain` shows how far it is"
            raise LooplineError("no_output", f"there is no output of task {task}", hint, status=404)
        _, output = written
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Loopline-Cut": str(output.cut).lower()}
        if output.sha256 is None:
            return web.Response(body=output.data, headers=headers)
        return web.FileResponse(await self.files.path(task.job, output.sha256), headers=headers)

    async def _follow(self, request: web.Request, task: TaskId, stream: Stream, rank: int) -> web.StreamResponse:
        """Send until the task has ended, or the reader disconnects."""
        found(await self.store.tasks.detail(task), f"task {task}")
        headers = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
        response = await begin_stream(request, headers)
        if request.method == "HEAD":
            return response
        with suppress(ConnectionError):
            async with aclosing(_Follower(self, task, stream, rank).pieces()) as pieces:
                async for piece in pieces:
                    await response.write(piece)
                    if request.transport is None or request.transport.is_closing():
                        break
        return response


class _Follower:
    """Reads the output of one task for one reader."""

    def __init__(self, output: TaskOutput, task: TaskId, stream: Stream, rank: int) -> None:
        self._output, self._task, self._stream, self._rank = output, task, stream, rank
        self._shown = 0  # number of the attempt that is shown
        self._offset = 0  # bytes of it that were shown

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Generate the output until the task is over. Empty pieces only keep the connection alive."""
        with self._output.changes.read() as changes:
            while True:
                detail = found(await self._output.store.tasks.detail(self._task), f"task {self._task}")
                if detail.finished_at is not None:
                    async for piece in self._rest():
                        yield piece
                    return
                is_more, attempt = False, self._attempt_of(detail)
                if attempt is not None:
                    yield self._turn_to(attempt.id.number, attempt.worker)
                    is_more, data = await self._read(attempt)
                    self._offset += len(data)
                    yield data
                if not is_more:
                    await _has_changed(changes, self._task.job, OUTPUT_LOOK_AGAIN_S)
                    await asyncio.sleep(STREAM_REST_S)
                    yield b""

    def _attempt_of(self, detail: TaskDetail) -> AttemptView | None:
        """Return the attempt shown until now if it is running, else the first running one."""
        running = [one for one in detail.attempts if one.state is AttemptState.RUNNING]
        running = [one for one in running if one.rank in (None, self._rank)]
        shown = [attempt for attempt in running if attempt.id.number == self._shown]
        return next(iter(shown or running), None)

    def _turn_to(self, number: int, worker: str) -> bytes:
        """Show this attempt from now on. Return a line for the reader if another was shown before."""
        before, self._shown = self._shown, number
        if before in (0, number):
            return b""
        self._offset = 0
        return f"\n--- attempt {number}{worker and ' on '}{worker} continues, from its beginning ---\n".encode()

    async def _read(self, attempt: AttemptView) -> tuple[bool, bytes]:
        """Return True if more can be read at once, and the bytes that were read."""
        answer = await self._output.links.read(attempt.worker, attempt.id, self._stream, self._offset)
        return (False, b"") if answer is None else (not answer.is_over, answer.data)

    async def _rest(self) -> AsyncGenerator[bytes, None]:
        """Generate, from disk, the rest of the output of the task's decisive attempt."""
        kept = await self._output.store.attempts.output(self._task, self._stream, self._rank)
        if kept is None:
            return
        number, output = kept
        yield self._turn_to(number, "")
        path = await self._output.blobs.path(output.sha256) if output.sha256 else None
        if path is None:
            yield output.data[self._offset :]
            return
        with path.open("rb") as file:
            file.seek(self._offset)
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                yield piece


async def _has_changed(changes: ChangeReader, job: int, within_s: float) -> bool:
    """Wait for a change of a job; False if there was none within this time."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                change = await changes.next()
                if job in change.jobs or change.missed:
                    return True
    except TimeoutError:
        return False
