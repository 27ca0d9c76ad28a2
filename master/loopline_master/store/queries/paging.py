"""Pages of long lists: each page ends with a cursor that names its last item, and the next page continues there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from loopline_shared.errors import LooplineError
from loopline_shared.model import MAX_ID
from loopline_shared.rest.bodies import Page

Item = TypeVar("Item")
Key = TypeVar("Key")


def page_of(items: list[Item], limit: int, key: Callable[[Item], object]) -> Page[Item]:
    """Return the page of ``limit`` items; one more item says that there is a next page."""
    cut = items[:limit]
    return Page[Any](items=cut, next=str(key(cut[-1])) if len(items) > limit else None)


def after(cursor: str | None, read: Callable[[str], Key], start: Key) -> Key:
    """Return the key of the last item already seen; ``start`` without a cursor. Raises LooplineError for a bad
    cursor.
    """
    if cursor is None:
        return start
    try:
        return read(cursor)
    except ValueError:
        hint = "pass `next` of the previous page unchanged, or no cursor"
        raise LooplineError("invalid_cursor", f"{cursor[:80]!r} is not a cursor of this list", hint) from None


def number(text: str) -> int:
    """Return a number that the database can hold. Raises ValueError otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= MAX_ID):
        raise ValueError(text)
    return int(text)


def word(text: str) -> str:
    """Return text that PostgreSQL accepts. Raises ValueError otherwise."""
    if "\x00" in text:
        raise ValueError(text)
    return text


def moment(text: str) -> float:
    """Return a time exactly as it was written out. Raises ValueError otherwise."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
