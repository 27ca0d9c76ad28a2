"""Downloads from the master, by content: interrupted ones resume, and each file is checked."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from loopline_shared.errors import LooplineError
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.link.http_client import HttpClient

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Longest time without a single byte."""
_AT_ONCE = 4
_TRIES_AT_CONTENT = 3


class DownloadError(Exception):
    """A file cannot be fetched. ``is_gone``: the master does not have it, so that no worker can."""

    def __init__(self, reason: str, *, is_gone: bool = False) -> None:
        super().__init__(reason)
        self.is_gone = is_gone


class OtherSource(Protocol):
    """Source that is asked before the master, such as other workers."""

    async def fetch(self, sha256: str, part: Path, size_bytes: int | None) -> bool:
        """Fetch a file to ``part``, which may have its beginning. False if the master sends the file itself.

        Raises NetworkError, WrongContentError, GoneError or LooplineError, or OSError for this computer's disk.
        """


class Downloads:
    """Downloads some files at a time, from ``other`` if it has them, else from the master."""

    def __init__(
        self, http: HttpClient, other: OtherSource | None = None, allowance: NetworkAllowance | None = None
    ) -> None:
        self._http = http
        self._allowance = allowance
        self._other = other
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "download")

    async def fetch(self, sha256: str, part: Path, size_bytes: int | None = None) -> None:
        """Download a file to ``part``, which may have its start; its size may be unknown.

        Raises DownloadError, or OSError for the disk.
        """
        from loopline_worker.files.receiving import (  # not before the first file
            NetworkError,
            WrongContentError,
            size_of,
        )

        if self._allowance and self._allowance.why_closed:
            raise DownloadError(f"file {sha256} cannot be fetched: {self._allowance.why_closed}")
        backoff, wrong = self._http.backoff(), 0
        heard_at, had_bytes = time.monotonic(), size_of(part)
        while True:
            try:
                async with self._turn:
                    await self._try(sha256, part, size_bytes)
                return
            except WrongContentError:
                wrong, reason = wrong + 1, "the content does not match its hash"
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

    async def _try(self, sha256: str, part: Path, size_bytes: int | None) -> None:
        """Try once: from the other source, or the whole file from the master."""
        from loopline_worker.files.receiving import GoneError, size_of

        had_bytes = size_of(part)
        try:
            if not self._other or not await self._other.fetch(sha256, part, size_bytes):
                await self._try_whole(sha256, part)
        except GoneError:
            raise DownloadError(f"the master has no file {sha256}", is_gone=True) from None
        finally:
            if self._allowance:
                self._allowance.spend(max(0, size_of(part) - had_bytes))

    async def _try_whole(self, sha256: str, part: Path) -> None:
        """Try in a thread. When no task waits, its connection is cut, and it writes nothing more."""
        from loopline_worker.files.receiving import FileRequest, fetch

        headers = self._http.headers() | self._http.direct.asked()
        request = FileRequest(self._http.address(f"files/{sha256}"), self._http.tls(), headers)
        fetching = asyncio.get_running_loop().run_in_executor(self._threads, fetch, request, sha256, part)
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            if request.cut_off():
                await asyncio.gather(fetching, return_exceptions=True)
            else:
                fetching.cancel()
            raise
        finally:
            if request.is_lost_elsewhere:
                self._http.direct.avoid()
