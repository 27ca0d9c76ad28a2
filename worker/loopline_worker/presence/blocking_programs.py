"""Programs of the owner that keep tasks away while they run (setting ``not_while``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import psutil

_EVERY_S = 10.0
"""Interval between two looks at all processes, each of which takes milliseconds."""


def running() -> Iterable[str]:
    """Return the names of all processes."""
    return (process.info["name"] or "" for process in psutil.process_iter(["name"]))


class BlockingPrograms:
    """Looks for programs by name, without regard to case and to a final ``.exe``."""

    def __init__(self, names: Iterable[str], look: Callable[[], Iterable[str]] = running) -> None:
        self._names = {_plain(name): name for name in names}
        self._look = look
        self._found = ""
        self._looked = float("-inf")

    def found(self) -> str:
        """Return one of them that runs; empty if none does."""
        if self._names and time.monotonic() - self._looked >= _EVERY_S:
            self._looked = time.monotonic()
            there = {_plain(name) for name in self._look()}
            self._found = next((name for plain, name in self._names.items() if plain in there), "")
        return self._found


def _plain(name: str) -> str:
    return name.lower().removesuffix(".exe")[:15]  # Linux keeps no more of a name
