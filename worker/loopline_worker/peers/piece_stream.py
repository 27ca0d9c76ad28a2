"""Pieces on a connection between two workers, after the handshake.

The receiver names its first piece, and then repeatedly the last piece it will accept: its *credit*. The server sends
piece after piece below that number, each as soon as it has it, and a sign of life while it has none, which says
whether its owner's limit is the reason. A piece that the server had to wait for is marked *late*: the network between
the two does not limit the rate then. So the receiver controls the bytes in flight and their rate: it gives credit at
the planned rate, which the server need not know. A receiver that switches to another source first receives the bytes
in flight.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import IO

_NUMBER = struct.Struct("!I")
_HEAD = struct.Struct("!BI")
_PIECE, _ALIVE, _LATE_PIECE = 1, 2, 3
_LIMITED = 1
"""Number in a sign of life: the owner's limit holds the piece back. 0: it is not there."""
SIGN_EVERY_S = 0.25
"""Interval of signs of life from a server without the next piece."""
SILENT_AFTER_S = 1.0
"""A server that is silent for this long counts as dead."""
LEAST_BYTES_S = 32 * 1024.0
"""A server that sends less of a piece is as good as dead, too: it must not keep a receiver by a byte now and then."""

assert 2 * SIGN_EVERY_S < SILENT_AFTER_S


class StreamError(Exception):
    """The other end does not keep to the protocol, or has closed the connection."""


class IncomingPieces:
    """The receiver's end. A silent server is a TimeoutError."""

    def __init__(self, link: socket.socket, first: int) -> None:
        self.is_late = False
        """True if the server had to wait for the piece that came last."""
        self.took_s = 0.0
        """Time that the piece took, once the server had it."""
        self.is_limited = False
        """True if the last sign of life said that the owner's limit holds the piece back."""
        self._link = link
        self._next = self._credit = first
        link.settimeout(SILENT_AFTER_S)
        link.sendall(_NUMBER.pack(first))

    @property
    def on_the_way(self) -> int:
        """The number of pieces that have been asked for and have not come."""
        return self._credit - self._next

    def give_credit(self, number: int) -> None:
        """Ask for all pieces below this number."""
        if number > self._credit:
            self._link.sendall(_NUMBER.pack(number))
            self._credit = number

    def receive(self, buffer: memoryview) -> bool:
        """Receive the next piece into the buffer, which is as long. False if the server has only said that it lives.

        Raises StreamError or OSError.
        """
        head = bytearray(_HEAD.size)
        self._fill(memoryview(head))
        kind, number = _HEAD.unpack(head)
        if kind == _ALIVE:
            self.is_limited = number == _LIMITED
            return False
        if kind not in (_PIECE, _LATE_PIECE) or number != self._next or number >= self._credit:
            raise StreamError("it sent what was not asked for")
        began = time.monotonic()
        self._fill(buffer)
        self.took_s = time.monotonic() - began
        self.is_late = kind == _LATE_PIECE
        self._next += 1
        return True

    def _fill(self, buffer: memoryview) -> None:
        began, got_bytes = time.monotonic(), 0
        while buffer:
            count = self._link.recv_into(buffer)
            if not count:
                raise StreamError("it closed the connection")
            buffer, got_bytes = buffer[count:], got_bytes + count
            passed_s = time.monotonic() - began
            if buffer and passed_s > SILENT_AFTER_S and got_bytes < LEAST_BYTES_S * passed_s:
                raise StreamError(f"it sent {got_bytes} bytes in {passed_s:.1f} s")


class OutgoingPieces:
    """The server's end. Raises StreamError if the receiver is gone or breaks the protocol."""

    def __init__(self, link: socket.socket, patience_s: float) -> None:
        self._link = link
        self._patience_s = patience_s
        self._unread = b""
        link.settimeout(patience_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        while len(self._unread) < _NUMBER.size:
            self._hear()
        self.first = self.credit = self._pop_number()

    def listen(self, wait: bool) -> None:
        """Read the receiver's messages; with ``wait``, wait for one."""
        if wait and len(self._unread) < _NUMBER.size:
            self._hear()
        else:
            self._hear_if_said()
        while len(self._unread) >= _NUMBER.size:
            self.credit = max(self.credit, self._pop_number())

    def send(self, number: int, file: IO[bytes], start: int, length: int, *, is_late: bool = False) -> None:
        """Send a piece from the page cache, where it has just been written if it is passed on. Raises OSError."""
        self._link.sendall(_HEAD.pack(_LATE_PIECE if is_late else _PIECE, number))
        if _send_file(self._link, file, start, length) != length:
            raise StreamError("the file is shorter than it was")

    def say_alive(self, *, is_limited: bool = False) -> None:
        """Say that there is no piece yet, or that the owner's limit holds it back."""
        self._link.sendall(_HEAD.pack(_ALIVE, _LIMITED if is_limited else 0))

    def _hear_if_said(self) -> None:
        self._link.settimeout(0.0)
        try:
            with suppress(BlockingIOError, ssl.SSLWantReadError):
                self._hear()
        finally:
            self._link.settimeout(self._patience_s)

    def _hear(self) -> None:
        said = self._link.recv(256)
        if not said:
            raise StreamError("the receiver has gone")
        self._unread += said

    def _pop_number(self) -> int:
        number: int = _NUMBER.unpack_from(self._unread)[0]
        self._unread = self._unread[_NUMBER.size :]
        return number


def _send_file(link: socket.socket, file: IO[bytes], start: int, length: int) -> int:
    """Send a part of a file and return its length; where nothing is encrypted, the kernel does it alone."""
    if not isinstance(link, ssl.SSLSocket):
        return link.sendfile(file, start, length)
    file.seek(start)
    piece = file.read(length)
    link.sendall(piece)
    return len(piece)
