"""Files from the master, by their content: gone on with where they broke off, and checked when they are here.

Each comes in a thread of its own, which receives, hashes and writes one piece after the other while it is still in
the processor's cache: twice as fast as what an event loop would have to hand on.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from shared.errors import LooplineError
from worker.gate import Gate

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Without a single byte."""
_AT_ONCE = 4
_TRIES_AT_CONTENT = 3
_PIECE_BYTES = 2**18
_CONNECT_WITHIN_S, _SILENCE_S = 10.0, 30.0
_GONE = (404, 410)


class DownloadError(Exception):
    """It cannot be had. ``is_gone``: the master does not have it, so that no worker will."""

    def __init__(self, reason: str, *, is_gone: bool = False) -> None:
        super().__init__(reason)
        self.is_gone = is_gone


class _WrongContentError(Exception):
    pass


class Downloads:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "download")

    async def fetch(self, sha256: str, part: Path) -> None:
        """Into ``part``, of which some may be there already; DownloadError, or OSError where the disk refuses."""
        import aiohttp  # with the first file, and not before

        backoff, wrong = self._gate.backoff(), 0
        heard_at, had_bytes = time.monotonic(), _size(part)
        while True:
            try:
                async with self._turn:
                    await self._try(sha256, part)
                return
            except _WrongContentError:
                wrong, reason = wrong + 1, "what comes is something else"
                part.unlink(missing_ok=True)
                if wrong >= _TRIES_AT_CONTENT:
                    raise DownloadError(f"file {sha256}: {reason}") from None
            except (_NetworkError, LooplineError) as error:
                reason = str(error) or type(error).__name__
                log.debug("cannot fetch %s yet: %s", sha256, reason)
            if _size(part) > had_bytes:
                heard_at, had_bytes = time.monotonic(), _size(part)
                backoff.reset()
            if time.monotonic() - heard_at > PATIENCE_S:
                raise DownloadError(f"file {sha256} cannot be fetched: {reason}")
            await asyncio.sleep(backoff.next_s())

    async def _try(self, sha256: str, part: Path) -> None:
        """Once, in a thread, which has ended when this returns: it is cut off where nobody waits for it any more."""
        address = urlsplit(self._gate.address(f"files/{sha256}"))
        tls, host = self._gate.tls(), address.hostname or ""
        port = address.port or (HTTPS_PORT if tls else HTTP_PORT)
        connection = HTTPSConnection(host, port, context=tls) if tls else HTTPConnection(host, port)
        asked = _Asked(connection, address.path, self._gate.headers())
        fetching = asyncio.get_running_loop().run_in_executor(self._threads, _fetch, asked, sha256, part)
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            asked.cut_off()
            await asyncio.wait([fetching])
            raise


class _NetworkError(Exception):
    """Perhaps next time."""


class _Asked:
    """One request. Its thread uses it; anybody may cut it off."""

    def __init__(self, connection: HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self._connection, self._path, self._headers = connection, path, headers
        self._is_cut_off = False

    def send(self, start: int) -> HTTPResponse:
        """For all from this byte on."""
        with _network():
            self._connection.timeout = _CONNECT_WITHIN_S
            self._connection.connect()
            self._connection.sock.settimeout(_SILENCE_S)
            if self._is_cut_off:
                raise ConnectionAbortedError("nobody waits for it any more")
            range_ = {"Range": f"bytes={start}-"} if start else {}
            self._connection.request("GET", self._path, headers=self._headers | range_ | {"Connection": "close"})
            return self._connection.getresponse()

    def cut_off(self) -> None:
        self._is_cut_off = True
        with suppress(OSError):  # it may be over
            if link := self._connection.sock:  # it may not have begun
                socket.socket.shutdown(link, socket.SHUT_RDWR)  # below TLS, which its thread is at work with

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _network() -> Iterator[None]:
    """What goes wrong here is not the disk's doing."""
    try:
        yield
    except (OSError, HTTPException) as error:
        raise _NetworkError(str(error) or type(error).__name__) from error


def _fetch(asked: _Asked, sha256: str, part: Path) -> None:
    start = _size(part)
    with closing(asked), asked.send(start) as answer:
        if answer.status in _GONE:
            raise DownloadError(f"the master has no file {sha256}", is_gone=True)
        if answer.status not in (200, 206, 416):  # 416: it was all here
            raise _NetworkError(f"the master answered HTTP {answer.status}")
        start = 0 if answer.status == 200 else start
        with part.open("r+b" if start else "wb", buffering=0) as file:
            digest = _resume(file, start)
            if answer.status != 416:
                _take(file, digest, answer)
    if digest.hexdigest() != sha256:
        raise _WrongContentError


def _take(file: IO[bytes], digest: hashlib._Hash, answer: HTTPResponse) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    while True:
        with _network():
            count = answer.readinto(buffer)
        if not count:
            break
        digest.update(buffer[:count])
        _write(file, buffer[:count])
    if answer.length:
        raise _NetworkError(f"{answer.length:,} bytes did not come")


def _write(file: IO[bytes], piece: memoryview) -> None:
    """All of it: without a buffer, a file takes what it can."""
    while piece:
        piece = piece[file.write(piece) :]


def hash_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0


def _resume(file: IO[bytes], start: int) -> hashlib._Hash:
    digest, left = hashlib.sha256(), start
    while left and (piece := file.read(min(left, _PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    return digest
