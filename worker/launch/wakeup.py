"""Wait for a socket and for the end of children at once."""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress


class Wakeup:
    """A guard's or the launcher's sleep. One per process: it takes over SIGCHLD."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bell, ring = os.pipe()
        for end in (self._bell, ring):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)

    def wait(self) -> bool:
        """True where the socket has something or was hung up; False where a child ended."""
        readable, _, _ = select.select([self._bell, self._connection.fileno()], [], [])
        self._silence()
        return self._connection.fileno() in readable

    def pause(self, longest_s: float) -> None:
        """Until a child ended, or for ``longest_s``."""
        select.select([self._bell], [], [], longest_s)
        self._silence()

    def _silence(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
