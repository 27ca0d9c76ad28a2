"""Files from the master, by their content: gone on with where they broke off, and checked when they are here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from pathlib import Path
from typing import IO

from shared.errors import LooplineError
from worker.gate import Gate

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Without a single byte."""
_AT_ONCE = 4
_TRIES_AT_CONTENT = 3
_PIECE_BYTES = 2**20
_BUFFER_BYTES = 2**17
"""Of what has come and not been written; where a connection breaks, aiohttp drops it."""
_SILENCE_S = 30.0
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
            except (aiohttp.ClientError, ConnectionError, TimeoutError, LooplineError) as error:
                reason = str(error) or type(error).__name__
                log.debug("cannot fetch %s yet: %s", sha256, reason)
            if _size(part) > had_bytes:
                heard_at, had_bytes = time.monotonic(), _size(part)
                backoff.reset()
            if time.monotonic() - heard_at > PATIENCE_S:
                raise DownloadError(f"file {sha256} cannot be fetched: {reason}")
            await asyncio.sleep(backoff.next_s())

    async def _try(self, sha256: str, part: Path) -> None:
        start = _size(part)
        headers = self._gate.headers() | ({"Range": f"bytes={start}-"} if start else {})
        address = self._gate.address(f"files/{sha256}")
        async with self._gate.http.get(
            address, headers=headers, timeout=self._gate.timeout(_SILENCE_S), read_bufsize=_BUFFER_BYTES
        ) as answer:
            if answer.status in _GONE:
                raise DownloadError(f"the master has no file {sha256}", is_gone=True)
            if answer.status == 416:  # it was all here
                start = _size(part)
            elif answer.status not in (200, 206):
                raise ConnectionError(f"the master answered HTTP {answer.status}")
            elif answer.status == 200:
                start = 0
            with part.open("r+b" if start else "wb") as file:
                digest = await asyncio.to_thread(_resume, file, start)
                if answer.status != 416:
                    async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                        await asyncio.to_thread(_take, file, digest, piece)
        if digest.hexdigest() != sha256:
            raise _WrongContentError


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


def _take(file: IO[bytes], digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)
