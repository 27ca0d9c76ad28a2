"""Long output to the master, as blobs named by their SHA-256, before a result may name them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import aiohttp

from shared.errors import LooplineError
from shared.model import INLINE_LIMIT_BYTES, Output, Result, Sha256
from worker.gate import Gate

log = logging.getLogger(__name__)

_AT_ONCE = 2
_TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=10)
_PASSING = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Answers below 500 that may be another one next time; the rest of them are final."""


class Uploads:
    def __init__(self, gate: Gate, on_moved: Callable[[int, float], None] = lambda size_bytes, seconds: None) -> None:
        """``on_moved`` is told how long so many bytes took."""
        self._gate = gate
        self._on_moved = on_moved
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def deliver(self, result: Result, files: tuple[Path, Path]) -> Result:
        """Until the master has what the result names; less of it where the master will never take it."""
        outputs = zip((result.stdout, result.stderr), files, strict=True)
        stdout, stderr = [await self._deliver(output, file) for output, file in outputs]
        return replace(result, stdout=stdout, stderr=stderr)

    async def _deliver(self, output: Output, file: Path) -> Output:
        if output.sha256 is None or await self._insist(output.sha256, file):
            return output
        return _beginning(output, file)

    async def _insist(self, sha256: Sha256, file: Path) -> bool:
        """True once the master has it, False where it never will; tries for as long as neither is sure."""
        backoff = self._gate.backoff()
        while True:
            try:
                async with self._turn:
                    status = await self._put(sha256, file)
                if status < 300:
                    return True
                if status < 500 and status not in _PASSING:
                    log.warning("the master refused %s with HTTP %d: only its beginning is sent", file.name, status)
                    return False
            except FileNotFoundError:
                log.warning("%s is gone: only its size is sent", file)
                return False
            except (aiohttp.ClientError, OSError, TimeoutError, LooplineError) as error:
                log.debug("cannot upload %s yet: %s", file.name, error)
            await asyncio.sleep(backoff.next_s())

    async def _put(self, sha256: Sha256, file: Path) -> int:
        since = time.monotonic()
        with file.open("rb") as body:
            size_bytes = os.fstat(body.fileno()).st_size
            async with self._gate.http.put(
                self._gate.address(f"files/{sha256}"), data=body, headers=self._gate.headers(), timeout=_TIMEOUT
            ) as answer:
                if answer.status < 300:
                    self._on_moved(size_bytes, time.monotonic() - since)
                return answer.status


def _beginning(output: Output, file: Path) -> Output:
    try:
        with file.open("rb") as stream:
            data = stream.read(INLINE_LIMIT_BYTES)
    except OSError:
        data = b""
    return Output(output.size_bytes, cut=True, data=data)
