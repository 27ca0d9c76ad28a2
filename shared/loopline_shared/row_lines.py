"""Rows of a sweep as lines of a file (NDJSON): each line is a JSON object of parameters, in UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from loopline_shared.job.parameters import Row
from loopline_shared.plain_words import plain
from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_RUN_CHARACTERS

MAX_LINE_BYTES = 12 * MAX_RUN_CHARACTERS
"""Longest line: an escaped character takes at most 12 bytes."""

_ROW: TypeAdapter[dict[str, Scalar]] = TypeAdapter(Row, config=ConfigDict(strict=True, defer_build=True))
_MOST_TOLD = 3

ABOUT_NAMES = "a name is letters, digits and underscores, and does not begin with a digit"


def read_row(line: bytes) -> dict[str, Scalar]:
    """Read a line. Raises ValueError with a readable message if it is no row."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"it has more than {MAX_LINE_BYTES:,} bytes")
    if not line.strip():
        raise ValueError("it is empty: every line is the JSON object of one task")
    try:
        return _ROW.validate_json(line)
    except ValidationError as error:
        raise ValueError(_mistakes(error)) from None


def check_row(row: object) -> dict[str, Scalar]:
    """Check a row that is still to be written. Raises ValueError like ``read_row``."""
    try:
        return _ROW.validate_python(row)
    except ValidationError as error:
        raise ValueError(_mistakes(error)) from None


def write_row(row: Mapping[str, Scalar]) -> bytes:
    """Return the line of a row."""
    return to_json(row) + b"\n"


def _mistakes(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[:_MOST_TOLD]
    return "; ".join(_mistake(one["loc"], plain(one)) for one in found)


def _mistake(loc: tuple[int | str, ...], message: str) -> str:
    """Return the parameter and its mistake, without the kinds of values that were tried."""
    said = ABOUT_NAMES if loc[-1:] == ("[key]",) else message
    return f"{loc[0]}: {said}" if loc else said
