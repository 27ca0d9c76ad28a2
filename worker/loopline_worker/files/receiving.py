"""Receiving a file from the master in a thread, which receives, checks and writes one piece after the other.

Each piece is still in the processor's cache then: twice as fast as pieces that an event loop passes on.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import IO
from urllib.parse import urlsplit

from loopline_shared.checksums import HEADER, ContentCheck
from loopline_shared.rest.direct import ELSEWHERE

_PIECE_BYTES = 2**21
"""Most that is received before it is checked: with less, the two ends wait for each other more often."""
_ENOUGH_BYTES = 2**20
"""Least that is received before it is checked: small pieces, as TLS has them, would each become a write."""
_WRITE_BYTES = 2**16
"""Most that is written at once: for more, the kernel looks for adjacent pages, which may take longer than copying."""
_CONNECT_WITHIN_S, _SILENCE_S = 10.0, 30.0
GONE = (404, 410)


class GoneError(Exception):
    """The master does not have the file."""


class WrongContentError(Exception):
    """The received content does not match its hash."""


class NetworkError(Exception):
    """The network failed; another attempt may succeed."""


class FileRequest:
    """Request for a file. Its thread uses it; any thread may cut it off."""

    def __init__(self, url: str, tls: SSLContext | None, headers: dict[str, str]) -> None:
        self._connection = connection_to(url, tls)
        self._path, self._headers = urlsplit(url).path, headers
        self._is_cut_off = False
        self.is_lost_elsewhere = False
        """True if the master has named an address that cannot be reached from here."""

    def send(self, start: int) -> HTTPResponse:
        """Request all from this byte on, from the master or from where it says that the file is."""
        with network():
            answer = self._ask(start)
            if answer.status != ELSEWHERE:
                return answer
            self.close()
            url = answer.getheader("Location", "")
            self._connection = connection_to(url, create_default_context() if url.startswith("https:") else None)
            parts = urlsplit(url)
            self._path, self._headers, self.is_lost_elsewhere = f"{parts.path}?{parts.query}", {}, True
            answer = self._ask(start)
            self.is_lost_elsewhere = False
            if answer.status in GONE:  # the master has just found it there
                raise ConnectionError(f"the object storage answered HTTP {answer.status}")
            return answer

    def _ask(self, start: int) -> HTTPResponse:
        self._connection.timeout = _CONNECT_WITHIN_S
        self._connection.connect()
        self._connection.sock.settimeout(_SILENCE_S)
        if self._is_cut_off:
            raise ConnectionAbortedError("the file is no longer wanted")
        range_ = {"Range": f"bytes={start}-"} if start else {}
        self._connection.request("GET", self._path, headers=self._headers | range_ | {"Connection": "close"})
        return self._connection.getresponse()

    def cut_off(self) -> bool:
        """Cut the connection off. True if there was one; otherwise there will never be one."""
        self._is_cut_off = True
        link = self._connection.sock
        if link:
            with suppress(OSError):  # it may be closed already
                socket.socket.shutdown(link, socket.SHUT_RDWR)  # below TLS, which its thread uses
        return link is not None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def connection_to(url: str, tls: SSLContext | None) -> HTTPConnection:
    """Return a connection to the server of this URL, not yet connected."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (HTTPS_PORT if tls else HTTP_PORT)
    return HTTPSConnection(host, port, context=tls) if tls else HTTPConnection(host, port)


@contextmanager
def network() -> Iterator[None]:
    """Turn errors into NetworkError, to tell them from errors of the disk."""
    try:
        yield
    except (OSError, HTTPException) as error:
        raise NetworkError(str(error) or type(error).__name__) from error


def fetch(request: FileRequest, sha256: str, part: Path) -> None:
    """Download a file to ``part`` and check it, resuming after what is there."""
    start = size_of(part)
    with closing(request), request.send(start) as answer:
        if answer.status in GONE:
            raise GoneError
        if answer.status not in (200, 206, 416):  # 416: all of it was here
            raise NetworkError(f"the master answered HTTP {answer.status}")
        start = 0 if answer.status == 200 else start
        check = ContentCheck(sha256, answer.getheader(HEADER, ""))
        with part.open("r+b" if start else "wb", buffering=0) as file:
            _resume(file, check, start)
            if answer.status != 416:
                _write_body(file, check, answer)
    if not check.is_passed:
        raise WrongContentError


def _write_body(file: IO[bytes], check: ContentCheck, answer: HTTPResponse) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    while True:
        with network():
            count = _receive(answer, buffer)
        if not count:
            break
        check.update(buffer[:count])
        write_all(file, buffer[:count])
    if answer.length:
        raise NetworkError(f"{answer.length:,} bytes are missing")


def _receive(answer: HTTPResponse, buffer: memoryview) -> int:
    """Receive into the buffer and return the size; 0 at the end. ``readinto`` would wait for a full buffer."""
    if not answer.length:  # unknown, or nothing
        return answer.readinto(buffer)
    room, count = buffer[: answer.length], 0
    while count < min(_ENOUGH_BYTES, len(room)) and (more := answer.fp.readinto1(room[count:])):
        count += more
    answer.length -= count
    return count


def write_all(file: IO[bytes], piece: memoryview) -> None:
    """Write all of it: an unbuffered file may write less."""
    while piece:
        piece = piece[file.write(piece[:_WRITE_BYTES]) :]


def size_of(part: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0


def _resume(file: IO[bytes], check: ContentCheck, start: int) -> None:
    left = start
    while left and (piece := file.read(min(left, _PIECE_BYTES))):
        check.update(piece)
        left -= len(piece)
