"""Mistakes in a job, in words for its author, and where they are."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from loopline_shared.plain_words import plain
from loopline_shared.row_lines import ABOUT_NAMES
from loopline_shared.settings_source import meant
from loopline_shared.spec import JobSpec, Requirements, TaskSpec

Location = tuple[str | int, ...]

_MODELS: tuple[type[BaseModel], ...] = (JobSpec, Requirements, TaskSpec)


def place(document: Any, loc: Location) -> Location:
    """Return the part of an error's location that is in the document, without the kinds that were tried."""
    path = list[str | int]()
    for step in loc:
        if _has(document, step):
            document = document[step]
            path.append(step)
    return tuple(path)


def said(path: Location, message: str) -> str:
    """Return a message with its place."""
    where = ".".join(map(str, path))
    return f"{where}: {message}" if where else message


def message(found: Any) -> str:
    """Return the message for one of ValidationError.errors()."""
    if found["type"] == "extra_forbidden":
        known = {name for model in _MODELS for name in model.model_fields}
        return f"there is no such key: {meant(str(found['loc'][-1]), known)}"
    if found["type"] == "missing":
        return f"{found['loc'][-1]} is missing"
    if found["loc"][-1:] == ("[key]",):
        return ABOUT_NAMES
    return plain(found)


def _has(document: Any, step: str | int) -> bool:
    if isinstance(document, dict):
        return step in document
    return isinstance(document, list) and isinstance(step, int) and step < len(document)
