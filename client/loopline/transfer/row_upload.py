"""Uploads of the rows of a sweep: a few go along with their job, many as a file of their own."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from loopline.rest_client import RestClient
from loopline.transfer import files
from loopline.transfer.files import OnProgress
from loopline_shared.job.parameters import MAX_TASKS, RowFile, Table
from loopline_shared.row_lines import read_row, write_row
from loopline_shared.scalar import Scalar

MOST_INLINE = 1000
MOST_INLINE_BYTES = 1_000_000
_TOLD_EVERY = 2000

Row = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows in a file on this computer, in the format of the master."""

    path: Path
    count: int
    size_bytes: int
    sha256: str
    names: frozenset[str]  # names of the parameters

    @property
    def are_few(self) -> bool:
        """True if the rows go along with their job, so that nothing has to be uploaded."""
        return self.count <= MOST_INLINE and self.size_bytes <= MOST_INLINE_BYTES

    def parameters(self) -> Table | RowFile:
        """Return the parameters of the job spec."""
        if self.are_few:
            return Table(rows=self.first(self.count))
        return RowFile(file=f"sha256:{self.sha256}", count=self.count)

    def first(self, count: int) -> list[dict[str, Scalar]]:
        """Return the first rows."""
        with self.path.open("rb") as file:
            return [read_row(line) for line in islice(file, count)]


@asynccontextmanager
async def written(rows: Iterable[Row], on_progress: OnProgress = lambda count: None) -> AsyncIterator[WrittenRows]:
    """Write rows, one for each task, to a file that is there until the end of the block.

    Rows are taken one by one, so that there may be more than memory holds; ``on_progress`` is called with their
    count. Raises ValueError if there are no rows, or too many.
    """
    with tempfile.TemporaryDirectory(prefix="loopline-") as folder:
        path = Path(folder) / "rows.ndjson"
        with path.open("wb") as file:
            count, sha256, names = await _write(file, rows, on_progress)
        yield WrittenRows(path, count, path.stat().st_size, sha256, names)


async def upload(client: RestClient, rows: WrittenRows, on_progress: OnProgress = lambda count: None) -> None:
    """Upload the rows as the file that their job names; ``on_progress`` is called with bytes."""
    await files.upload(client, rows.path, on_progress, rows.sha256)


async def _write(file: IO[bytes], rows: Iterable[Row], on_progress: OnProgress) -> tuple[int, str, frozenset[str]]:
    count, digest, names = 0, hashlib.sha256(), set[str]()
    for row in rows:
        names |= row.keys()
        line = write_row(row)
        digest.update(line)
        file.write(line)
        count += 1
        if count % _TOLD_EVERY == 0:
            on_progress(count)
            await asyncio.sleep(0)  # lets an interrupt through
        if count > MAX_TASKS:
            raise ValueError(f"there are more than the {MAX_TASKS:,} tasks that a job may have")
    if not count:
        raise ValueError("there are no rows, and so no tasks")
    return count, digest.hexdigest(), frozenset(names)
