"""Results of a job, read from the rows and files on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from loopline_master.files.blobs import Blobs
from loopline_master.files.row_files import RowFiles
from loopline_master.http.lookups import found
from loopline_master.store import Store
from loopline_master.store.queries.result_queries import JobResults
from loopline_shared.model import Output
from loopline_shared.rest.bodies import TaskResult

Piece = tuple[bytes, bool]
"""Lines of some results, and whether they are the last."""
MAX_STDOUT_BYTES = 64 * 1024  # of each result in the stream; a task's stdout operation returns all of it


class StoredResults:
    """Reads results, with their parameters and the beginning of their stdout."""

    def __init__(self, store: Store, blobs: Blobs, row_files: RowFiles) -> None:
        self._store, self._blobs, self._row_files = store, blobs, row_files

    def of_job(self, job: int, cursor: str | None) -> JobResults:
        """Return a reader of one job's results after the cursor."""
        return self._store.results.of_job(job, self._beginning_of, cursor=cursor, lines=self._row_files.rows)

    async def pieces(self, job: int, cursor: str | None) -> AsyncGenerator[Piece, None]:
        """Generate the results so far in batches, and finally an empty piece."""
        results = self.of_job(job, cursor)
        while read := await results.next():
            yield lines(read), False
        found(None if results.is_unknown else results, f"job {job}")
        yield b"", True

    async def _beginning_of(self, output: Output) -> bytes:
        if output.sha256 is None:
            return output.data[:MAX_STDOUT_BYTES]
        return await asyncio.to_thread(self._blobs.read, output, MAX_STDOUT_BYTES)


def lines(read: list[tuple[str, TaskResult]]) -> bytes:
    """Return a line for each result, with its cursor."""
    return b"".join(line(result.model_copy(update={"cursor": cursor})) for cursor, result in read)


def line(result: TaskResult) -> bytes:
    """Return the result as a line of NDJSON."""
    return result.model_dump_json().encode() + b"\n"
