"""Row files: sweeps whose tasks are the lines of an uploaded file (NDJSON), which is never held in memory.

The scheduler knows only how many there are. What stands in a line is read when its task is sent to a worker, after
the commit, or shown to somebody.
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
from loopline_shared.protocol.messages import Assign, Run
from loopline_shared.row_lines import MAX_LINE_BYTES, read_row
from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_RUN_CHARACTERS, PLACEHOLDER, JobSpec, RowFile, run_length
from loopline_shared.sweep import fill, placeholders, unknown_names

log = logging.getLogger(__name__)

CHECKED_AT_ONCE = 2
INDEXES_KEPT = 32
BLOCK_BYTES = 16 * 1024
LONGER_WRITTEN_OUT = 50 * 24
"""Characters that a row's numbers may gain: 1e300 is written 1e+300."""

Row = Mapping[str, Scalar]


class RowFiles:
    """The lines of uploaded files, by number from 1."""

    def __init__(self, blobs: Blobs, max_rows: int) -> None:
        self._blobs = blobs
        self._max_rows = max_rows
        self._checking = asyncio.Semaphore(CHECKED_AT_ONCE)
        self._index = lru_cache(INDEXES_KEPT)(LineIndex)  # a file's content never changes

    async def checked(self, spec: JobSpec) -> tuple[JobSpec, list[str]]:
        """A job with its rows counted, and what there is to say of its parameters' names.

        LooplineError where its row file is not here, or a line of it is no row. Other jobs are left as they are.
        """
        if not isinstance(spec.parameters, RowFile):
            return spec, unknown_names(spec)
        path, stop = self._find(spec.parameters), threading.Event()
        try:
            async with self._checking:
                count, names = await asyncio.to_thread(_survey, path, spec, self._max_rows, stop)
        finally:
            stop.set()  # nobody waits for it any more
        if spec.parameters.count not in (None, count):
            message = f"the row file has {count:,} lines, not {spec.parameters.count:,}"
            raise LooplineError("wrong_count", message, "leave the count out, or say what it is", status=422)
        _check_calls(spec, count)
        return counted(spec, count), unknown_names(spec, names)

    async def rows(self, spec: JobSpec, tasks: Iterable[int]) -> dict[int, Row]:
        """Lines of a job's row file, by its tasks' numbers; empty where it has none, or where that is gone."""
        if not isinstance(spec.parameters, RowFile):
            return {}
        return await asyncio.to_thread(self._read, spec.parameters.sha256, tasks)

    async def complete(self, assign: Assign) -> Assign:
        """With the parameters of all its Runs put in, except where the file is gone."""
        files = {run.row_file for run in assign.run if run.row_file}
        if not files:
            return assign
        wanted = {file: [run.attempt.task for run in assign.run if run.row_file == file] for file in files}
        lines = {file: await asyncio.to_thread(self._read, file, tasks) for file, tasks in wanted.items()}
        return replace(assign, run=tuple(_completed(run, lines.get(run.row_file or "", {})) for run in assign.run))

    def _find(self, rows: RowFile) -> Path:
        path = self._blobs.find(rows.sha256)
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
        except (OSError, ValueError) as error:  # it was checked once: somebody has laid hands on it
            log.error("the row file %s cannot be read: %s", path, error)
            return {}


class LineIndex:
    """Where a file's lines are: a mark in each block of it, so that many lines take no more memory than few."""

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
        """The lines of these numbers, which are from 0 and ascend."""
        at = None  # the line where the file is
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
    """With the number of its rows filled in, where it is left to the master."""
    rows = spec.parameters
    if not isinstance(rows, RowFile) or rows.count is not None:
        return spec
    return spec.model_copy(update={"parameters": rows.model_copy(update={"count": count})})


def _check_calls(spec: JobSpec, count: int) -> None:
    """Whoever waits for the calls of a function waits for all of them."""
    function = spec.function
    if function and function.chunk and function.calls and -(-function.calls // function.chunk) != count:
        message = f"{function.calls:,} calls, {function.chunk:,} a task, do not come to {count:,} tasks"
        raise LooplineError("wrong_count", message, "a row of the file is what one task is told", status=422)


def _survey(path: Path, spec: JobSpec, max_rows: int, stop: threading.Event) -> tuple[int, set[str]]:
    """How many rows there are, and which of the names in the command's braces occur in them; of the other
    parameters, those of the first row.
    """
    used, names, count = set(placeholders(spec)), set[str](), 0
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
    """No task is started with too much whose line is no longer: not even if all of it were put in at every name."""
    times = 1 + sum(len(PLACEHOLDER.findall(argument)) for argument in spec.command or ())
    return (MAX_RUN_CHARACTERS - run_length(spec, {})) // times - LONGER_WRITTEN_OUT


def _check_length(spec: JobSpec, row: Row) -> None:
    longest = run_length(spec, {name: len(str(value)) for name, value in row.items()})
    if longest > MAX_RUN_CHARACTERS:
        message = f"command, parameters and environment of its task come to {longest:,} characters"
        raise ValueError(f"{message}, the limit is {MAX_RUN_CHARACTERS:,}")


def _completed(run: Run, lines: Mapping[int, Row]) -> Run:
    row = lines.get(run.attempt.task)
    if run.row_file is None or row is None:
        return run
    return replace(run, command=fill(run.command, row), parameters=dict(row), row_file=None)


def _too_many(max_rows: int) -> LooplineError:
    message = f"the row file has more lines than the {max_rows:,} tasks that a job may have on this master"
    return LooplineError("too_many_tasks", message, "split the job, or raise limits.max_tasks of the master", 422)
