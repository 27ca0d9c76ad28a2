"""What a task wrote and left, to the master: as files named by their SHA-256, before a result may name them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_shared.model import INLINE_LIMIT_BYTES, Outcome, Output, Result, Sha256
from loopline_worker.link.http_client import Gate

log = logging.getLogger(__name__)

_AT_ONCE = 2
_PIECE_BYTES = 2**20
_SILENCE_S = 600.0
_WRONG_CONTENT = 422
_PASSING = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Answers below 500 that may be another one next time; the rest of them are final."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The master will never have it: why, and whether it is this computer that lost it."""

    reason: str
    is_ours: bool = False


class Uploads:
    def __init__(self, gate: Gate, on_moved: Callable[[int, float], None] = lambda size_bytes, seconds: None) -> None:
        """``on_moved`` is told how long so many bytes took."""
        self._gate = gate
        self._on_moved = on_moved
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def deliver(
        self, result: Result, files: tuple[Path, Path], value_file: Path | None = None, folder: Path | None = None
    ) -> Result:
        """Until the master has what the result names; less of it where the master will never take it.

        ``folder``: where the files are that its task left, by their SHA-256. Without one of them it is no success.
        """
        outputs = zip((result.stdout, result.stderr), files, strict=True)
        stdout, stderr = [await self._deliver(output, file) for output, file in outputs]
        result = replace(result, stdout=stdout, stderr=stderr)
        if value_file:
            result = await self._deliver_value(result, value_file)
        return await self._deliver_files(result, folder) if folder and result.outputs else result

    async def _deliver(self, output: Output, file: Path) -> Output:
        if output.sha256 is None:
            return output
        refusal = await self._insist(output.sha256, file)
        return output if refusal is None else self._cut(output, file, refusal)

    async def _deliver_value(self, result: Result, file: Path) -> Result:
        if result.value is None or result.value.sha256 is None:
            return result
        refusal = await self._insist(result.value.sha256, file)
        if refusal is None:
            return result
        if refusal.is_ours:
            reason = f"what it returned cannot be kept: {refusal.reason}"
            return replace(result, outcome=Outcome.GIVEN_BACK, reason=reason[:500], outputs=(), value=None)
        return replace(result, value=self._cut(result.value, file, refusal))

    def _cut(self, output: Output, file: Path, refusal: _Refusal) -> Output:
        log.warning("%s: %s: only its beginning is sent", file.name, refusal.reason)
        return _beginning(output, file)

    async def _deliver_files(self, result: Result, folder: Path) -> Result:
        contents = {file.sha256: file.path for file in result.outputs}
        refusals = await asyncio.gather(*(self._insist(sha256, folder / sha256) for sha256 in contents))
        for path, refusal in zip(contents.values(), refusals, strict=True):
            if refusal:
                outcome = Outcome.GIVEN_BACK if refusal.is_ours else Outcome.FAILED
                reason = f"its output {path} cannot be kept: {refusal.reason}"
                return replace(result, outcome=outcome, reason=reason[:500], outputs=())
        return result

    async def _insist(self, sha256: Sha256, file: Path) -> _Refusal | None:
        """Until the master has it, or never will; tries for as long as neither is sure."""
        import aiohttp  # with the first file, and not before

        backoff = self._gate.backoff()
        while True:
            try:
                async with self._turn:
                    refusal = await self._bring(sha256, file)
                if refusal is None or refusal.reason:
                    return refusal
            except FileNotFoundError:
                return _Refusal("it is gone from the worker's disk", is_ours=True)
            except (aiohttp.ClientError, OSError, TimeoutError, LooplineError) as error:
                log.debug("cannot upload %s yet: %s", file.name, error)
            await asyncio.sleep(backoff.next_s())

    async def _bring(self, sha256: Sha256, file: Path) -> _Refusal | None:
        """One try; a refusal without a reason may be another answer next time."""
        offset = await self._offset(sha256)
        if offset is None:
            return None
        status = await self._put(sha256, file, offset)
        if status == _WRONG_CONTENT and offset:  # what was there already may be to blame, and is gone now
            status = await self._put(sha256, file, 0)
        if status < 300:
            return None
        is_final = status < 500 and status not in _PASSING
        return _Refusal(f"the master refuses it with HTTP {status}{_MEANING.get(status, '')}" if is_final else "")

    async def _offset(self, sha256: Sha256) -> int | None:
        """From where on the master does not have it; None: it has it all."""
        address = self._gate.address(f"files/{sha256}")
        async with self._gate.http.head(
            address, headers=self._gate.headers(), timeout=self._gate.timeout(_SILENCE_S)
        ) as answer:
            if answer.status == 200:
                return None
            return int(answer.headers.get("Upload-Offset", 0))

    async def _put(self, sha256: Sha256, file: Path, offset: int) -> int:
        size_bytes, since = file.stat().st_size, time.monotonic()
        headers = {**self._gate.headers(), "Content-Length": str(size_bytes - offset)}
        if 0 < offset < size_bytes:
            headers["Content-Range"] = f"bytes {offset}-{size_bytes - 1}/{size_bytes}"
        else:
            offset, headers["Content-Length"] = 0, str(size_bytes)
        async with self._gate.http.put(
            self._gate.address(f"files/{sha256}"),
            data=_rest(file, offset),
            headers=headers,
            timeout=self._gate.timeout(_SILENCE_S),
        ) as answer:
            if answer.status < 300:
                self._on_moved(size_bytes - offset, time.monotonic() - since)
            return answer.status


_MEANING = {413: ": it is larger than limits.max_file_bytes there", _WRONG_CONTENT: ": it is not what it was"}


async def _rest(file: Path, offset: int) -> AsyncIterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(offset)
        while piece := await asyncio.to_thread(stream.read, _PIECE_BYTES):
            yield piece


def _beginning(output: Output, file: Path) -> Output:
    try:
        with file.open("rb") as stream:
            data = stream.read(INLINE_LIMIT_BYTES)
    except OSError:
        data = b""
    return Output(output.size_bytes, cut=True, data=data)
