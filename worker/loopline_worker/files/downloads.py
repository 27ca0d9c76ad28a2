"""Files from the master, by their content: gone on with where they broke off, and checked when they are here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_worker.link.http_client import Gate

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Without a single byte."""
_AT_ONCE = 4
_TRIES_AT_CONTENT = 3


class DownloadError(Exception):
    """It cannot be had. ``is_gone``: the master does not have it, so that no worker will."""

    def __init__(self, reason: str, *, is_gone: bool = False) -> None:
        super().__init__(reason)
        self.is_gone = is_gone


class Downloads:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "download")

    async def fetch(self, sha256: str, part: Path) -> None:
        """Into ``part``, of which some may be there already; DownloadError, or OSError where the disk refuses."""
        from loopline_worker.files.receiving import (  # with the first file, and not before
            NetworkError,
            WrongContentError,
            size_of,
        )

        backoff, wrong = self._gate.backoff(), 0
        heard_at, had_bytes = time.monotonic(), size_of(part)
        while True:
            try:
                async with self._turn:
                    await self._try(sha256, part)
                return
            except WrongContentError:
                wrong, reason = wrong + 1, "what comes is something else"
                part.unlink(missing_ok=True)
                if wrong >= _TRIES_AT_CONTENT:
                    raise DownloadError(f"file {sha256}: {reason}") from None
            except (NetworkError, LooplineError) as error:
                reason = str(error) or type(error).__name__
                log.debug("cannot fetch %s yet: %s", sha256, reason)
            if size_of(part) > had_bytes:
                heard_at, had_bytes = time.monotonic(), size_of(part)
                backoff.reset()
            if time.monotonic() - heard_at > PATIENCE_S:
                raise DownloadError(f"file {sha256} cannot be fetched: {reason}")
            await asyncio.sleep(backoff.next_s())

    async def _try(self, sha256: str, part: Path) -> None:
        """Once, in a thread, which is cut off where nobody waits for it any more, and no longer writes then."""
        from loopline_worker.files.receiving import Asked, GoneError, fetch

        asked = Asked(self._gate.address(f"files/{sha256}"), self._gate.tls(), self._gate.headers())
        fetching = asyncio.get_running_loop().run_in_executor(self._threads, fetch, asked, sha256, part)
        try:
            await asyncio.shield(fetching)
        except GoneError:
            raise DownloadError(f"the master has no file {sha256}", is_gone=True) from None
        except asyncio.CancelledError:
            if asked.cut_off():
                await asyncio.wait([fetching])
            raise


def hash_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
