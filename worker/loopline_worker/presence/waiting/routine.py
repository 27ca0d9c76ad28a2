"""Routines: generators that yield what they wait for, so that any loop can run them."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

_T = TypeVar("_T")


class Wait(NamedTuple):
    """The file that a routine waits for, or the time if that comes first."""

    file: int | None  # its descriptor; None: for the time alone
    until: float  # on the clock of time.monotonic


Routine: TypeAlias = Generator[Wait, bool, _T]
"""Is resumed with True if the file can be read, with False if the time has come. It may be closed at any wait."""


def pause(seconds: float) -> Routine[None]:
    """Wait for ``seconds``."""
    yield Wait(None, time.monotonic() + seconds)
