"""Wait for files that can be read and for the end of children at once."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class Wakeup:
    """A guard's or the launcher's sleep. One per process: it takes over SIGCHLD."""

    def __init__(self, *files: int) -> None:
        self._bell, ring = os.pipe()
        for end in (self._bell, ring):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        self.has_rung = False  # a child ended before the last ``wait`` was over
        self._poll = select.poll()
        self.watch(self._bell)  # looked at first: what came before a child ended is seen together with its end
        for file in files:
            self.watch(file)

    def watch(self, file: int) -> None:
        self._poll.register(file, select.POLLIN)

    def forget(self, file: int) -> None:
        self._poll.unregister(file)

    def wait(self, longest_s: float | None = None) -> list[int]:
        """Which files have something or were hung up; perhaps none, for the end of a child wakes up too."""
        ready = [file for file, _ in self._poll.poll(None if longest_s is None else 1000 * longest_s)]
        self.has_rung = self._bell in ready
        if self.has_rung:
            ready.remove(self._bell)
            self._silence()
        return ready

    def has(self, file: int) -> bool:
        """Whether there is something to read now, or it was hung up."""
        return bool(select.select([file], [], [], 0)[0])

    def pause(self, longest_s: float) -> None:
        """Until a child ended, or for ``longest_s``, whatever there is to read."""
        if select.select([self._bell], [], [], longest_s)[0]:
            self._silence()

    def _silence(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
