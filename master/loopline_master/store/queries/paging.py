"""Pages of long lists: a page ends with a cursor that names its last item, and the next goes on from there."""

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
    """The page of ``limit`` items, made of one more: whether there is one says whether this is the last page."""
    cut = items[:limit]
    return Page[Any](items=cut, next=str(key(cut[-1])) if len(items) > limit else None)


def after(cursor: str | None, read: Callable[[str], Key], start: Key) -> Key:
    """The key of the last item already seen; ``start`` without a cursor. LooplineError where it is none."""
    if cursor is None:
        return start
    try:
        return read(cursor)
    except ValueError:
        hint = "give the cursor of the page before as it was, or none"
        raise LooplineError("invalid_cursor", f"{cursor[:80]!r} is not a cursor of this list", hint) from None


def number(text: str) -> int:
    """ValueError where it is none that the database could hold."""
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= MAX_ID):
        raise ValueError(text)
    return int(text)


def word(text: str) -> str:
    """ValueError where PostgreSQL would not take it."""
    if "\x00" in text:
        raise ValueError(text)
    return text


def moment(text: str) -> float:
    """A time, exactly as it was written out; ValueError where it is none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
