"""The event loop of a process that only waits, such as the reporter: one system call finds the routines to resume."""

from __future__ import annotations

import math
import os
import select
import time
from contextlib import suppress

from loopline_worker.presence.waiting.routine import Routine, Wait


class PollLoop:
    """Runs routines in turns, each until it waits again. What one of them raises ends all."""

    def __init__(self) -> None:
        self._waits: dict[Routine[None], Wait] = {}

    def run(self, *routines: Routine[None]) -> None:
        """Run these until all have ended."""
        try:
            for routine in routines:
                with suppress(StopIteration):
                    self._waits[routine] = next(routine)
            while self._waits:
                self._turn()
        finally:
            for routine in self._waits:
                routine.close()
            self._waits.clear()

    def _turn(self) -> None:
        """Wait for the first ready file or due time, and resume its routines."""
        readable, now = self._readable(), time.monotonic()
        for routine, wait in list(self._waits.items()):
            if wait.file in readable or wait.until <= now:
                try:
                    self._waits[routine] = routine.send(wait.file in readable)
                except StopIteration:
                    del self._waits[routine]

    def _readable(self) -> set[int | None]:
        poll = select.poll()
        for wait in self._waits.values():
            if wait.file is not None:
                poll.register(wait.file, select.POLLIN)
        first = min(wait.until for wait in self._waits.values())
        left_ms = None if first == math.inf else max(0.0, 1000 * (first - time.monotonic()))
        return {file for file, _ in poll.poll(left_ms)}


class Bell:
    """A file of the kernel's that can be read from when it is rung until it is silenced (Linux)."""

    def __init__(self) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        os.close(self._file)

    def ring(self) -> None:
        """Wake whoever waits, or waits next."""
        os.eventfd_write(self._file, 1)

    def silence(self) -> None:
        """Forget that it was rung."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._file)

    def rings(self, until: float = math.inf) -> Routine[bool]:
        """Wait until it rings (True), or until that time (False)."""
        return (yield Wait(self._file, until))
