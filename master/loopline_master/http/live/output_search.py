"""Searches the output of a job's tasks line by line, a bounded number of bytes for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO

from loopline_master.files.retained import RetainedFiles
from loopline_master.store import Store
from loopline_master.store.queries.paging import after, number
from loopline_shared.errors import LooplineError
from loopline_shared.model import STREAMS, Output, Stream, TaskId
from loopline_shared.rest.bodies import FoundLine, Page

MOST_BYTES = 64 * 2**20
"""Read for one request, and perhaps one task more: the client continues with ``next``."""
_TASKS_AT_ONCE = 200
_PIECE_BYTES = 2**16
_SHOWN_BYTES, _BEFORE_BYTES = 500, 200
"""Of a long line, only this much around the text is returned."""


class OutputSearch:
    """Finds lines in the output of a job's tasks; one search at a time, since each reads many files."""

    def __init__(self, store: Store, files: RetainedFiles) -> None:
        self._store, self._files = store, files
        self._turn = asyncio.Lock()

    async def lines(self, job: int, text: str, *, cursor: str | None, limit: int) -> Page[FoundLine]:
        """Return lines that contain the text, by task; capital and small letters of ASCII are equal.

        A page ends with a task: it has all of its lines, but never more than ``limit`` of one stream.
        """
        last, found, read_bytes = after(cursor, number, 0), list[FoundLine](), 0
        wanted = text.encode().lower()
        async with self._turn:
            while tasks := await self._store.tasks.outputs(job, last, _TASKS_AT_ONCE):
                for task in tasks:
                    for stream in STREAMS:
                        output: Output | None = getattr(task, stream)
                        if output is not None and output.size_bytes:
                            read_bytes += output.size_bytes
                            found += await self._of_task(TaskId(job, task.number), stream, output, wanted, limit)
                    last = task.number
                    if len(found) >= limit or read_bytes >= MOST_BYTES:
                        return Page[FoundLine](items=found, next=str(last))
        return Page[FoundLine](items=found)

    async def _of_task(
        self, task: TaskId, stream: Stream, output: Output, wanted: bytes, limit: int
    ) -> list[FoundLine]:
        """Return the lines of one stream; none if its file was removed."""
        try:
            source = output.data if output.sha256 is None else await self._files.path(task.job, output.sha256)
        except LooplineError:
            return []
        lines = await asyncio.to_thread(lambda: list(islice(_lines_with(wanted, source), limit)))
        return [FoundLine(task=task, stream=stream, line=line, text=text) for line, text in lines]


def _lines_with(wanted: bytes, source: bytes | Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each matching line; a long line is searched in pieces of 64 KiB."""
    line, is_new, shown = 0, True, False
    with _opened(source) as file:
        while piece := file.readline(_PIECE_BYTES):
            if is_new:
                line, shown = line + 1, False
            if not shown and (at := piece.lower().find(wanted)) >= 0:
                shown = True
                cut = piece.rstrip(b"\r\n")[max(0, at - _BEFORE_BYTES) :][:_SHOWN_BYTES]
                yield line, cut.decode(errors="replace")
            is_new = piece.endswith(b"\n")


def _opened(source: bytes | Path) -> IO[bytes]:
    return BytesIO(source) if isinstance(source, bytes) else source.open("rb")
