"""Inputs of a what-if run: the event log as lines of JSON, and a job from a file.

``loopline replay DATABASE --events`` writes the log, a batch on each line. A job is written as ``POST /api/v1/jobs``
takes it: JSON, TOML or, if a reader for it is installed, YAML.
"""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline_master.core.events import BATCH, Batch, MasterStarted
from loopline_shared.errors import LooplineError
from loopline_shared.spec import JobSpec


def batches(lines: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the batches one by one. Raises LooplineError with the number of an invalid line, or for an empty log."""
    number = 0
    for number, line in enumerate(lines, 1):
        batch = _batch(number, line)
        if number == 1 and not any(isinstance(event, MasterStarted) for event in batch.events):
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
    """Read the job. Raises LooplineError with the file's mistake."""
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise _unusable(file, "a job file ends in .json, .toml or .yaml")
    try:
        return JobSpec.model_validate(reader(file.read_text("utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _unusable(file, f"{place}: {first['msg']}" if place else first["msg"]) from None
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except ValueError as error:  # that of every reader
        raise _unusable(file, str(error)) from None


def _yaml(text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise ValueError("no reader for YAML is installed: write the job as JSON or TOML") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


_READERS: dict[str, Callable[[str], Any]] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": _yaml,
    ".yml": _yaml,
}


def _unusable(file: Path, why: str) -> LooplineError:
    return LooplineError("usage", f"{file}: {why}")
