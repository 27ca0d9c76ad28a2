"""Programs of the owner's that mean "not now": whether one of them runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import psutil

_EVERY_S = 10.0
"""Looking at all processes takes milliseconds."""


def running() -> Iterable[str]:
    """Names of all processes."""
    return (process.info["name"] or "" for process in psutil.process_iter(["name"]))


class Programs:
    """``names`` are compared without regard to case, and to the ``.exe`` at the end."""

    def __init__(self, names: Iterable[str], look: Callable[[], Iterable[str]] = running) -> None:
        self._names = {_plain(name): name for name in names}
        self._look = look
        self._found = ""
        self._looked = float("-inf")

    def found(self) -> str:
        """One that runs; empty where none does."""
        if self._names and time.monotonic() - self._looked >= _EVERY_S:
            self._looked = time.monotonic()
            there = {_plain(name) for name in self._look()}
            self._found = next((name for plain, name in self._names.items() if plain in there), "")
        return self._found


def _plain(name: str) -> str:
    return name.lower().removesuffix(".exe")[:15]  # Linux keeps no more of a name
