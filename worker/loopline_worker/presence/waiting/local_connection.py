"""A connection to a program of this computer, by its socket, which never blocks."""

from __future__ import annotations

import os
import socket
import time
from typing import Self

from loopline_worker.presence.waiting.routine import Routine, Wait

_PART_BYTES = 4096
_MOST_FILES = 4
"""Open files that may come with one part."""


class LocalConnection:
    """Sends at once, and receives as a routine. Raises OSError, or EOFError once the other end is closed."""

    def __init__(self, path: str, *, takes_files: bool = False) -> None:
        """``takes_files``: the other end may pass open files, which are then in ``files``."""
        self._received = b""
        self.takes_files = takes_files
        self.files: list[int] = []  # passed, in order; a caller that removes a file has to close it
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        try:
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the remaining files."""
        self._socket.close()
        while self.files:
            os.close(self.files.pop())

    def send(self, data: bytes) -> None:
        """Send. Raises OSError if the other end reads so slowly that the buffer is full."""
        self._socket.sendall(data)

    def part(self, until: float) -> Routine[bytes]:
        """Return what comes next. Raises TimeoutError if that time comes first, whatever came before."""
        if self._received:
            received, self._received = self._received, b""
            return received
        if time.monotonic() >= until or not (yield Wait(self._socket.fileno(), until)):
            raise TimeoutError
        received = self._receive()
        if not received:
            raise EOFError("the other end has closed the connection")
        return received

    def _receive(self) -> bytes:
        if not self.takes_files:
            return self._socket.recv(_PART_BYTES)
        part, files, _, _ = socket.recv_fds(self._socket, _PART_BYTES, _MOST_FILES)
        for file in files:
            os.set_inheritable(file, False)
        self.files += files
        return part

    def exactly(self, length: int, until: float) -> Routine[bytes]:
        """Return ``length`` bytes."""
        received = b""
        while len(received) < length:
            received += yield from self.part(until)
        self._received = received[length:] + self._received  # of no bytes it reads nothing
        return received[:length]

    def line(self, longest: int, until: float) -> Routine[bytes]:
        """Return a line. Raises ValueError if it is longer than that."""
        received = b""
        while b"\n" not in received:
            if len(received) > longest:
                raise ValueError(f"a line of more than {longest} bytes")
            received += yield from self.part(until)
        line, _, self._received = received.partition(b"\n")
        return line
