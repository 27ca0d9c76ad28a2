"""Inputs of a what-if run: the event log as lines of JSON, and a job from a file.

``loopline replay DATABASE --events`` writes the log, a batch on each line. A job is written as ``POST /api/v1/jobs``
takes it, as JSON; the command line reads the other formats.

If the beginning of the log was removed, its first line is the snapshot that the scheduler continued from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_master.core.events import BATCH, Batch, MasterStarted, SnapshotWritten
from loopline_master.core.snapshot import Snapshot
from loopline_shared.errors import LooplineError
from loopline_shared.plain_words import plain
from loopline_shared.spec import JobSpec

_SNAPSHOT = b'{"grid":'
_BEGINNINGS = (MasterStarted, SnapshotWritten)


def batches(lines: Iterable[bytes]) -> Iterator[Batch | Snapshot]:
    """Yield the batches, after the snapshot that the log begins with, if there is one.

    Raises LooplineError with the number of an invalid line, or for an empty log.
    """
    number, first = 0, 1
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(_SNAPSHOT):
            first = 2
            yield TypeAdapter(Snapshot).validate_json(line)
            continue
        batch = _batch(number, line)
        if number == first and not any(isinstance(event, _BEGINNINGS) for event in batch.events):
            raise broken("the log does not begin with the start of a master", "it must be whole, from its first line")
        yield batch
    if not number:
        raise broken("the log is empty: nothing has happened yet", "a master writes it from its first start on")


def broken(message: str, hint: str = "") -> LooplineError:
    return LooplineError("log", message, hint)


def _batch(number: int, line: bytes) -> Batch:
    try:
        return BATCH.validate_json(line)
    except ValidationError as error:
        if not line.endswith(b"\n"):
            raise broken(f"the log breaks off in line {number}", "write it again, to its end") from None
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise broken(f"line {number} of the log is not a batch of events: {what}") from None


def read_job(file: Path) -> JobSpec:
    """Read the job, as JSON: other languages are the client's. Raises LooplineError with the file's mistake."""
    try:
        return JobSpec.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _unusable(file, f"{place}: {plain(first)}" if place else plain(first)) from None
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None


def _unusable(file: Path, why: str) -> LooplineError:
    return LooplineError("usage", f"{file}: {why}")
