"""Row files: sweeps whose tasks are the lines of an uploaded file (NDJSON), which is never held in memory.

The scheduler knows only the number of lines. A line is read when its task is sent to a worker, after the commit, or
shown to a user.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from loopline_master.files.blobs import Blobs
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import RowFile
from loopline_shared.job_files import all_outputs
from loopline_shared.protocol.templates import names_in
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_shared.row_lines import MAX_LINE_BYTES, read_row
from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_RUN_CHARACTERS, PLACEHOLDER, JobSpec, run_length
from loopline_shared.sweep import check_names, fill, placeholders, unknown_names

log = logging.getLogger(__name__)

CHECKED_AT_ONCE = 2
INDEXES_KEPT = 32
BLOCK_BYTES = 16 * 1024
LONGER_WRITTEN_OUT = 50 * 24
"""Most characters that the numbers of a row may grow when they are written: 1e300 becomes 1e+300."""

Row = Mapping[str, Scalar]


class RowFiles:
    """Reads the lines of uploaded files, by number from 1."""

    def __init__(self, blobs: Blobs, max_rows: int) -> None:
        self._blobs = blobs
        self._max_rows = max_rows
        self._checking = asyncio.Semaphore(CHECKED_AT_ONCE)
        self._index = lru_cache(INDEXES_KEPT)(LineIndex)  # a file's content never changes

    async def checked(self, spec: JobSpec, rows: RowFile) -> tuple[JobSpec, list[str]]:
        """Return a job with its rows counted, and remarks on the names of its parameters.

        Raises LooplineError if its row file is not here, or a line of it is no row.
        """
        path, stop = await self._find(rows), threading.Event()
        try:
            async with self._checking:
                count, names = await asyncio.to_thread(_survey, path, spec, self._max_rows, stop)
        finally:
            stop.set()  # the request is over: the thread may stop
        if rows.count not in (None, count):
            message = f"the row file has {count:,} lines, not {rows.count:,}"
            raise LooplineError("wrong_count", message, "omit the count, or correct it", status=422)
        _check_calls(spec, count)
        try:
            check_names(spec, names)
        except ValueError as error:
            raise LooplineError("unknown_parameter", str(error), "correct the name", status=422) from None
        return counted(spec, count), unknown_names(spec, names)

    async def rows(self, spec: JobSpec, tasks: Iterable[int]) -> dict[int, Row]:
        """Return lines of a job's row file by the numbers of their tasks; empty if the job has no row file."""
        if not isinstance(spec.parameters, RowFile):
            return {}
        return await asyncio.to_thread(self._read, spec.parameters.sha256, tasks)

    async def complete(self, assign: Assign) -> Assign:
        """Return the Assign with the parameters of its Runs filled in, except where the row file is gone."""
        files = {run.row_file for run in assign.run if run.row_file}
        if not files:
            return assign
        wanted = {file: [run.attempt.task for run in assign.run if run.row_file == file] for file in files}
        lines = {file: await asyncio.to_thread(self._read, file, tasks) for file, tasks in wanted.items()}
        return replace(assign, run=tuple(_completed(run, lines.get(run.row_file or "", {})) for run in assign.run))

    async def _find(self, rows: RowFile) -> Path:
        path = await self._blobs.path(rows.sha256)
        if path is None:
            hint = f"PUT it to /files/{rows.sha256} first"
            raise LooplineError("missing_file", f"there is no file {rows.file} on this master", hint, status=422)
        return path

    def _read(self, sha256: str, tasks: Iterable[int]) -> dict[int, Row]:
        path = self._blobs.find(sha256)
        if path is None:
            return {}
        wanted = sorted(set(tasks))
        try:
            with path.open("rb") as file:
                lines = self._index(path).lines(file, [task - 1 for task in wanted])
                return {task: read_row(line) for task, line in zip(wanted, lines, strict=True)}
        except (OSError, ValueError) as error:  # it was checked once: it has been changed on disk since
            log.error("the row file %s cannot be read: %s", path, error)
            return {}


class LineIndex:
    """An index of a file's lines: one entry for each block, so that many lines take no more memory than few."""

    def __init__(self, path: Path) -> None:
        self._lines, self._offsets = array("Q", [0]), array("Q", [0])
        line = offset = 0
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if (end := block.find(b"\n")) >= 0:
                    self._lines.append(line + 1)
                    self._offsets.append(offset + end + 1)
                line, offset = line + block.count(b"\n"), offset + len(block)

    def lines(self, file: IO[bytes], numbers: Sequence[int]) -> Iterator[bytes]:
        """Generate the lines of these numbers, which count from 0 and ascend."""
        at = None  # the file's current line
        for number in numbers:
            mark = bisect_right(self._lines, number) - 1
            if at is None or self._lines[mark] > at:
                at = self._lines[mark]
                file.seek(self._offsets[mark])
            for _ in range(number - at):
                file.readline()
            at = number + 1
            yield file.readline()


def counted(spec: JobSpec, count: int) -> JobSpec:
    """Return the job with the number of its rows filled in, if its user left that to the master."""
    rows = spec.parameters
    if not isinstance(rows, RowFile) or rows.count is not None:
        return spec
    return spec.model_copy(update={"parameters": rows.model_copy(update={"count": count})})


def _check_calls(spec: JobSpec, count: int) -> None:
    """Raises LooplineError if the rows do not make up all calls of the function: their caller waits for all."""
    function = spec.function
    if function and function.chunk and function.calls and -(-function.calls // function.chunk) != count:
        message = f"{function.calls:,} calls, {function.chunk:,} a task, do not make {count:,} tasks"
        raise LooplineError("wrong_count", message, "each row of the file is one task", status=422)


def _survey(path: Path, spec: JobSpec, max_rows: int, stop: threading.Event) -> tuple[int, set[str]]:
    """Return the number of rows, and which names in the job's braces occur in them.

    Of the other parameters, the names in the first row are returned.
    """
    braced = names_in((*all_outputs(spec.outputs), *spec.environment.values()))
    used, names, count = {*placeholders(spec), *braced}, set[str](), 0
    harmless_bytes = _harmless_bytes(spec)
    with path.open("rb") as file:
        while (line := file.readline(MAX_LINE_BYTES + 1)) and not stop.is_set():
            count += 1
            if count > max_rows:
                raise _too_many(max_rows)
            try:
                row = read_row(line)
                if len(line) > harmless_bytes:
                    _check_length(spec, row)
            except ValueError as error:
                message = f"line {count:,} of the row file: {error}"
                raise LooplineError("bad_row", message, "each line is a JSON object of scalars", 422) from None
            names |= row.keys() if count == 1 else used & row.keys()
    if not count:
        raise LooplineError("bad_row", "the row file is empty", "each line of it is one task", status=422)
    return count, names


def _harmless_bytes(spec: JobSpec) -> int:
    """Return a length of lines that cannot make a task too long, even if a line is inserted at every place."""
    times = 1 + sum(len(PLACEHOLDER.findall(argument)) for argument in spec.command or ())
    return (MAX_RUN_CHARACTERS - run_length(spec, {})) // times - LONGER_WRITTEN_OUT


def _check_length(spec: JobSpec, row: Row) -> None:
    longest = run_length(spec, {name: len(str(value)) for name, value in row.items()})
    if longest > MAX_RUN_CHARACTERS:
        message = f"command, parameters and environment of its task have {longest:,} characters"
        raise ValueError(f"{message}, the limit is {MAX_RUN_CHARACTERS:,}")


def _completed(run: Run, lines: Mapping[int, Row]) -> Run:
    row = lines.get(run.attempt.task)
    if run.row_file is None or row is None:
        return run
    return replace(run, command=fill(run.command, row), parameters=dict(row), row_file=None)


def _too_many(max_rows: int) -> LooplineError:
    message = f"the row file has more lines than the {max_rows:,} tasks that a job may have on this master"
    return LooplineError("too_many_tasks", message, "split the job, or raise limits.max_tasks of the master", 422)
