"""Upstreams: where pieces of a file come from. A worker and the master are asked in the same way, with credit."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Protocol

from loopline_shared.pieces import PieceLayout
from loopline_shared.protocol.transfers import FaultKind, FileSource, Grant
from loopline_worker.files.receiving import GONE, GoneError, NetworkError, network
from loopline_worker.peers import handshake
from loopline_worker.peers.handshake import HandshakeError
from loopline_worker.peers.peer_tls import PeerTls
from loopline_worker.peers.piece_stream import IncomingPieces, StreamError

_CONNECT_WITHIN_S = 1.5
_FIRST_RANGE_BYTES, _LONGEST_RANGE_BYTES = 2**20, 2**22


class SourceError(Exception):
    """A worker failed as a source, in this way. Another source may do.

    ``lives``: if it was silent for too long, whether it had sent signs of life; None: it hung up.
    """

    def __init__(self, kind: FaultKind, reason: object, lives: bool | None = None) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.kind = kind
        self.lives = lives

    @classmethod
    def silent(cls, error: Exception) -> SourceError:
        """Return the error of a source whose connection has failed: by silence, or by an end."""
        return cls(FaultKind.SILENT, error, lives=False if isinstance(error, TimeoutError) else None)


class Upstream(Protocol):
    """Pieces in order, from one source."""

    window_bytes: int
    """Most bytes on their way."""

    @property
    def credit(self) -> int:
        """The number of the first piece that has not been asked for."""

    @property
    def on_the_way(self) -> int:
        """The number of pieces that have been asked for and have not come."""

    @property
    def is_late(self) -> bool:
        """True if the source had to wait for the piece that came last."""

    @property
    def took_s(self) -> float:
        """Seconds between the first and the last byte of the piece that came last."""

    @property
    def is_limited(self) -> bool:
        """True if the source has said that its owner's limit holds the next piece back."""

    def ask_up_to(self, number: int) -> None:
        """Ask for all pieces below this number. Raises SourceError or NetworkError."""

    def receive(self, buffer: memoryview) -> bool:
        """Receive the next piece into the buffer, which is as long. False if the source has only said that it lives.

        Raises SourceError or NetworkError.
        """

    def cut(self) -> None:
        """End the connection; any thread may. A thread that waits in ``receive`` gets an error."""

    def close(self) -> None:
        """Close the connection, in the thread that receives."""


class PeerUpstream:
    """Pieces from a worker."""

    window_bytes = 2**21

    def __init__(self, link: socket.socket, first: int) -> None:
        self._link = link
        self.credit = first
        self._pieces = IncomingPieces(link, first)

    @classmethod
    def connect(
        cls, source: FileSource, sha256: str, receiver: str, first: int, tls: PeerTls | None = None
    ) -> PeerUpstream:
        """Connect to a worker, by TLS if the grid is encrypted. Raises SourceError."""
        try:
            link = socket.create_connection((source.host, source.port), _CONNECT_WITHIN_S)
        except OSError as error:
            raise SourceError(FaultKind.UNREACHABLE, error) from None
        grant = Grant(sha256, source.worker, receiver, source.expires_at)
        try:
            link = handshake.call(link, "receive", grant, bytes.fromhex(source.secret), tls)
            return cls(link, first)
        except TimeoutError as error:  # the call was accepted, but no data came
            link.close()
            raise SourceError.silent(error) from None
        except (OSError, HandshakeError) as error:
            link.close()
            raise SourceError(FaultKind.REFUSED, error) from None

    @property
    def on_the_way(self) -> int:
        """The number of pieces that have been asked for and have not come."""
        return self._pieces.on_the_way

    @property
    def is_late(self) -> bool:
        """True if the source had to wait for the piece that came last."""
        return self._pieces.is_late

    @property
    def took_s(self) -> float:
        """Transfer time of that piece in seconds."""
        return self._pieces.took_s

    @property
    def is_limited(self) -> bool:
        """True if the source has said that its owner's limit holds the next piece back."""
        return self._pieces.is_limited

    def ask_up_to(self, number: int) -> None:
        """Ask for all pieces below this number. Raises SourceError."""
        try:
            self._pieces.give_credit(number)
        except OSError as error:
            raise SourceError.silent(error) from None
        self.credit = number

    def receive(self, buffer: memoryview) -> bool:
        """Receive the next piece. Raises SourceError."""
        try:
            return self._pieces.receive(buffer)
        except (OSError, StreamError) as error:
            raise SourceError.silent(error) from None

    def cut(self) -> None:
        """End the connection, from any thread."""
        shut(self._link)

    def close(self) -> None:
        """Close the connection."""
        self.cut()
        self._link.close()


class MasterUpstream:
    """Pieces from the master over one connection, in ranges within the credit.

    The first ranges are short, so that a receiver that learns of a worker can switch to it quickly.
    """

    is_late = is_limited = False

    def __init__(
        self, connection: HTTPConnection, path: str, headers: dict[str, str], layout: PieceLayout, first: int
    ):
        self._connection = connection
        self._path, self._headers = path, headers
        self._layout = layout
        self.window_bytes = _FIRST_RANGE_BYTES
        self.took_s = 0.0
        self._answer: HTTPResponse | None = None
        self._next = self._answered = self.credit = first

    @property
    def on_the_way(self) -> int:
        """The number of pieces that have been asked for and have not come."""
        return self.credit - self._next

    def ask_up_to(self, number: int) -> None:
        """Have the next range reach up to this piece."""
        self.credit = number

    def receive(self, buffer: memoryview) -> bool:
        """Receive the next piece. Raises NetworkError, or GoneError if the master does not have the file."""
        with network():
            answer = self._answer if self._next < self._answered else None
            answer = self._answer = answer or self._send()
            began = time.monotonic()
            if answer.readinto(buffer) != len(buffer):  # which waits for a full buffer
                raise NetworkError("the master closed the connection")
        self.took_s = time.monotonic() - began
        self._next += 1
        return True

    def cut(self) -> None:
        """End the connection, from any thread."""
        if link := self._connection.sock:
            shut(link)

    def close(self) -> None:
        """Close the connection."""
        self.cut()  # an unread answer keeps it open
        self._connection.close()

    def _send(self) -> HTTPResponse:
        if self._answer:
            self._answer.read()  # its end, so that the connection can be used again
        start, end = self._layout.start(self._next), self._layout.start(self.credit)
        self._connection.request("GET", self._path, headers=self._headers | {"Range": f"bytes={start}-{end - 1}"})
        answer = self._connection.getresponse()
        if answer.status in GONE:
            raise GoneError
        if answer.status != 206 or answer.length != end - start:
            raise NetworkError(f"the master answered HTTP {answer.status}")
        self._answered = self.credit
        self.window_bytes = min(2 * self.window_bytes, _LONGEST_RANGE_BYTES)
        return answer


def shut(link: socket.socket) -> None:
    """Shut a connection down below TLS, which wakes the thread that uses it."""
    with suppress(OSError):  # it may be closed already
        socket.socket.shutdown(link, socket.SHUT_RDWR)
