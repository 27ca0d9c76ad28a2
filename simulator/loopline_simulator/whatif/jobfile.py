"""A job from a file, as ``POST /api/v1/jobs`` takes it: JSON, TOML or, if a reader for it is installed, YAML."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline_shared.errors import LooplineError
from loopline_shared.spec import JobSpec


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
