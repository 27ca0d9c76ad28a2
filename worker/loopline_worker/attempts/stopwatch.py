"""Stopwatch of an attempt, with an alarm at its time limit: frozen time does not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Stopwatch:
    """Runs from its making; ``on_end`` is called once it has run for ``limit_s``, if that is set by ``limit``."""

    def __init__(self) -> None:
        self._counted_s = 0.0
        self._since: float | None = time.monotonic()
        self._limit_s: float | None = None
        self._on_end: Callable[[], None] = _nothing
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def elapsed_s(self) -> float:
        """Return the time counted until now."""
        return self._counted_s + (0.0 if self._since is None else time.monotonic() - self._since)

    def limit(self, limit_s: float | None, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` once so much time is counted; None: never."""
        self._limit_s, self._on_end = limit_s, on_end
        self._set_alarm()

    def stop(self) -> None:
        """Stop counting until ``start()``."""
        self._counted_s, self._since = self.elapsed_s, None
        self._set_alarm()

    def start(self) -> None:
        """Count on."""
        if self._since is None:
            self._since = time.monotonic()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._alarm = None
        if self._limit_s is not None and self._since is not None:
            left_s = max(0.0, self._limit_s - self.elapsed_s)
            self._alarm = asyncio.get_running_loop().call_later(left_s, self._on_end)


def _nothing() -> None: ...
