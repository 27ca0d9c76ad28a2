"""Rows of a sweep as the lines of a file (NDJSON): one JSON object of parameters a line, in UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from loopline_shared.scalar import Scalar
from loopline_shared.spec import MAX_RUN_CHARACTERS, Row

MAX_LINE_BYTES = 12 * MAX_RUN_CHARACTERS
"""A character takes at most so many bytes, escaped; no row has more of them."""

_ROW: TypeAdapter[dict[str, Scalar]] = TypeAdapter(Row, config=ConfigDict(strict=True))
_MOST_TOLD = 3

ABOUT_NAMES = "a name is letters, digits and underscores, and does not begin with a digit"


def read_row(line: bytes) -> dict[str, Scalar]:
    """What a line says; ValueError for people, where it is none of a row."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"it has more than {MAX_LINE_BYTES:,} bytes")
    if not line.strip():
        raise ValueError("it is empty: every line is the JSON object of one task")
    try:
        return _ROW.validate_json(line)
    except ValidationError as error:
        raise ValueError(_mistakes(error)) from None


def check_row(row: object) -> dict[str, Scalar]:
    """The same of a row that is not yet written."""
    try:
        return _ROW.validate_python(row)
    except ValidationError as error:
        raise ValueError(_mistakes(error)) from None


def write_row(row: Mapping[str, Scalar]) -> bytes:
    """Its line."""
    return to_json(row) + b"\n"


def _mistakes(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_TOLD]
    return "; ".join(_mistake(one["loc"], one["msg"]) for one in found)


def _mistake(loc: tuple[int | str, ...], message: str) -> str:
    """The parameter and what is wrong with it: what kinds of values were tried is nobody's concern."""
    said = ABOUT_NAMES if loc[-1:] == ("[key]",) else message
    return f"{loc[0]}: {said}" if loc else said
