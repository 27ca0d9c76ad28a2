"""A bell, which wakes a routine."""

from __future__ import annotations

import math
import os
from contextlib import suppress

from loopline_worker.presence.waiting.routine import Routine, Wait


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
