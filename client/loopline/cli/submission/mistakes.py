"""Mistakes in a job, in words for its author, and where they are."""

from __future__ import annotations

from typing import Any

from loopline_shared.plain_words import plain_of
from loopline_shared.row_lines import ABOUT_NAMES
from loopline_shared.spec import JobSpec

Location = tuple[str | int, ...]


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
    if found["type"] == "missing":
        return f"{found['loc'][-1]} is missing"
    if found["loc"][-1:] == ("[key]",):
        return ABOUT_NAMES
    return plain_of(found, JobSpec)


def _has(document: Any, step: str | int) -> bool:
    if isinstance(document, dict):
        return step in document
    return isinstance(document, list) and isinstance(step, int) and step < len(document)
