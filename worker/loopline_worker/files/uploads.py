"""Uploads to the master: output and files of tasks, named by their SHA-256, before a result may name them."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_shared.model import INLINE_LIMIT_BYTES, Outcome, Output, Result, Sha256
from loopline_shared.rest import stakes
from loopline_shared.rest.direct import HEADER, TAKEN, DirectUpload
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.link.http_client import HttpClient

log = logging.getLogger(__name__)

_AT_ONCE = 2
_PIECE_BYTES = 2**20
_SENT_BYTES = 2**16
"""Bytes of a piece that are sent at a time: few enough that progress is visible even on a slow network."""
_ASK_AGAIN_S = 0.5
_SILENCE_S = 600.0
"""Longest wait for an answer while the link to the master is open; else see ``HttpClient.while_it_moves``."""
_WRONG_CONTENT = 422
_NO_ROOM = 507
_TEMPORARY = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Statuses below 500 after which another attempt may succeed; the others are final."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason why the master will never have a file. ``is_ours``: this computer's disk has lost or changed it."""

    reason: str
    is_ours: bool = False


class _NotYetError(Exception):
    """The master does not take a file yet."""


class UploadRefusedError(Exception):
    """The master will never take a file; the message says why."""


class Uploads:
    """Uploads some files at a time; ``on_moved`` is called with the size and duration of each upload."""

    def __init__(
        self,
        http: HttpClient,
        on_moved: Callable[[int, float], None] = lambda size_bytes, seconds: None,
        allowance: NetworkAllowance | None = None,
    ) -> None:
        self._http = http
        self._allowance = allowance
        self._on_moved = on_moved
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._asking = StakeQueue(_AT_ONCE)  # for turns of checkpoints: each holds a connection until it is answered
        self._has_told = False  # that the master has no room

    async def deliver(
        self, result: Result, files: tuple[Path, Path], value_file: Path | None = None, folder: Path | None = None
    ) -> Result:
        """Upload what the result names. Return the result without what the master will never take.

        ``folder`` holds the task's output files by their SHA-256. Without one of them the task has not succeeded. If
        this computer has lost a part of a success, the attempt is given back, so that the task runs again.
        """
        printed: list[Output] = []
        for output, file in zip((result.stdout, result.stderr), files, strict=True):
            refusal = await self._upload(output.sha256, file) if output.sha256 else None
            if refusal and refusal.is_ours and result.outcome is Outcome.SUCCEEDED:
                lost = replace(result, stdout=Output(), stderr=Output())
                return _given_back(lost, f"its output cannot be stored: {refusal.reason}")
            printed.append(output if refusal is None else self._cut(output, file, refusal))
        result = replace(result, stdout=printed[0], stderr=printed[1])
        if value_file:
            result = await self._deliver_value(result, value_file)
        return await self._deliver_files(result, folder) if folder and result.outputs else result

    async def _deliver_value(self, result: Result, file: Path) -> Result:
        if result.value is None or result.value.sha256 is None:
            return result
        refusal = await self._upload(result.value.sha256, file)
        if refusal is None:
            return result
        if refusal.is_ours:
            return _given_back(result, f"its result cannot be stored: {refusal.reason}")
        return replace(result, value=self._cut(result.value, file, refusal))

    def _cut(self, output: Output, file: Path, refusal: _Refusal) -> Output:
        log.warning("%s: %s: only its beginning is sent", file.name, refusal.reason)
        return _beginning(output, file)

    async def _deliver_files(self, result: Result, folder: Path) -> Result:
        contents = {file.sha256: file.path for file in result.outputs}
        answers = await asyncio.gather(*(self._upload(sha256, folder / sha256) for sha256 in contents))
        refusals = {sha256: answer for sha256, answer in zip(contents, answers, strict=True) if answer}
        if not refusals:
            return result
        outputs = tuple(file for file in result.outputs if file.sha256 not in refusals)
        if result.outcome is not Outcome.SUCCEEDED:
            return replace(result, outputs=outputs)
        sha256, refusal = next(iter(refusals.items()))
        reason = f"its output {contents[sha256]} cannot be stored: {refusal.reason}"[:500]
        if any(refusal.is_ours for refusal in refusals.values()):
            return _given_back(result, reason)
        return replace(result, outcome=Outcome.FAILED, reason=reason, outputs=outputs, is_final=True)

    async def upload(self, sha256: Sha256, file: Path, stake: float) -> bool:
        """Upload a file at its turn, trying until the master has it. False if it had it already.

        ``stake``: seconds of work that would be lost, for each byte to be sent. Raises UploadRefusedError.
        """
        try:
            if not await self._has_turn(sha256, file.stat().st_size, stake):
                return False
        except FileNotFoundError:
            raise UploadRefusedError("it is gone from the worker's disk") from None
        if refusal := await self._upload(sha256, file):
            raise UploadRefusedError(refusal.reason)
        return True

    async def _has_turn(self, sha256: Sha256, size_bytes: int, stake: float) -> bool:
        """Wait until the master takes a file. False if it has it."""
        import aiohttp

        backoff = self._http.backoff()
        while True:
            try:
                async with self._asking.turn(stake):
                    return await self._offset(sha256, size_bytes, stakes.encode(size_bytes, stake)) is not None
            except _NotYetError:
                await asyncio.sleep(_ASK_AGAIN_S)
            except (aiohttp.ClientError, OSError, TimeoutError, LooplineError) as error:
                log.debug("cannot upload %s yet: %s", sha256, error)
                await asyncio.sleep(backoff.next_s())

    async def _upload(self, sha256: Sha256, file: Path) -> _Refusal | None:
        """Upload a file, trying again until the master has it or refuses it for good."""
        import aiohttp  # not before the first file

        backoff = self._http.backoff()
        while True:
            try:
                async with self._turn:
                    if self._allowance:
                        await self._allowance.wait()
                    refusal = await self._try(sha256, file)
                if refusal is None or refusal.reason:
                    return refusal
            except FileNotFoundError:
                return _Refusal("it is gone from the worker's disk", is_ours=True)
            except (aiohttp.ClientError, OSError, TimeoutError, LooplineError) as error:
                log.debug("cannot upload %s yet: %s", file.name, error)
            await asyncio.sleep(backoff.next_s())

    async def _try(self, sha256: Sha256, file: Path) -> _Refusal | None:
        """Try once; after a refusal without a reason, another attempt may succeed."""
        offset = await self._offset(sha256, file.stat().st_size)
        if offset is None:
            return None
        if isinstance(offset, DirectUpload):
            if await self._send(offset, file) and await self._offset(sha256) is None:
                return None
            return _Refusal("")
        status = await self._put(sha256, file, offset)
        if status == _WRONG_CONTENT and offset:  # the beginning that the master had may be wrong, and is gone now
            status = await self._put(sha256, file, 0)
        if status < 300:
            self._has_told = False
            return None
        if status == _NO_ROOM and not self._has_told:
            self._has_told = True
            log.warning("%s waits here: the master's disk has no room for it; trying again until it has", file.name)
        is_final = status < 500 and status not in _TEMPORARY
        reason = f"the master refuses it with HTTP {status}{_MEANING.get(status, '')}" if is_final else ""
        return _Refusal(reason, is_ours=status == _WRONG_CONTENT)

    async def _offset(self, sha256: Sha256, size_bytes: int = 0, stake: str = "") -> int | DirectUpload | None:
        """Return the position where the upload continues, or another place to send it; None if the master has it.

        With a ``stake`` the master answers at the file's turn. Raises _NotYetError if it has not come for long.
        """
        address = self._http.address(f"files/{sha256}")
        headers = self._http.headers() | self._http.direct.asked(size_bytes)
        if stake:
            headers[stakes.HEADER] = stake
        timeout = self._http.timeout(_SILENCE_S)
        async with (
            self._http.while_it_moves(),
            self._http.http.head(address, headers=headers, timeout=timeout) as answer,
        ):
            if answer.status == 200:
                return None
            if stake and answer.status == stakes.WAIT:
                raise _NotYetError
            place = answer.headers.get(HEADER)
            return DirectUpload.decode(place) if place else int(answer.headers.get("Upload-Offset", 0))

    async def _send(self, place: DirectUpload, file: Path) -> bool:
        """Send a file past the master. Returns True if it is there now."""
        import aiohttp
        from yarl import URL

        size_bytes, since = file.stat().st_size, time.monotonic()
        headers = {**place.headers, "Content-Length": str(size_bytes)}
        try:
            async with (
                self._http.while_it_moves() as moved,
                self._http.http.put(
                    URL(place.url, encoded=True),
                    data=_rest(file, 0, moved),
                    headers=headers,
                    timeout=self._http.timeout(_SILENCE_S),
                    ssl=True,  # the system's certificates, for it is not the master
                ) as answer,
            ):
                if answer.status not in TAKEN:
                    if answer.status < 500 and answer.status not in _TEMPORARY:  # the master will say why
                        self._http.direct.avoid()
                    return False
        except aiohttp.ClientConnectorError:
            self._http.direct.avoid()
            raise
        self._moved(size_bytes, since)
        return True

    def _moved(self, size_bytes: int, since: float) -> None:
        self._on_moved(size_bytes, time.monotonic() - since)
        if self._allowance:
            self._allowance.spend(size_bytes)

    async def _put(self, sha256: Sha256, file: Path, offset: int) -> int:
        size_bytes, since = file.stat().st_size, time.monotonic()
        headers = {**self._http.headers(), "Content-Length": str(size_bytes - offset)}
        if 0 < offset < size_bytes:
            headers["Content-Range"] = f"bytes {offset}-{size_bytes - 1}/{size_bytes}"
        else:
            offset, headers["Content-Length"] = 0, str(size_bytes)
        async with (
            self._http.while_it_moves() as moved,
            self._http.http.put(
                self._http.address(f"files/{sha256}"),
                data=_rest(file, offset, moved),
                headers=headers,
                timeout=self._http.timeout(_SILENCE_S),
            ) as answer,
        ):
            if answer.status < 300:
                self._moved(size_bytes - offset, since)
            return answer.status


_MEANING = {413: ": it is larger than limits.max_file_bytes there", _WRONG_CONTENT: ": its content has changed"}


async def _rest(file: Path, offset: int, moved: Callable[[], None]) -> AsyncIterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(offset)
        while piece := await asyncio.to_thread(stream.read, _PIECE_BYTES):
            for start in range(0, len(piece), _SENT_BYTES):
                yield piece[start : start + _SENT_BYTES]
                moved()


def _given_back(result: Result, reason: str) -> Result:
    return replace(result, outcome=Outcome.GIVEN_BACK, reason=reason[:500], outputs=(), value=None)


def _beginning(output: Output, file: Path) -> Output:
    try:
        with file.open("rb") as stream:
            data = stream.read(INLINE_LIMIT_BYTES)
    except OSError:
        data = b""
    return Output(output.size_bytes, cut=True, data=data)


class StakeQueue:
    """Lets ``at_once`` callers in at a time, those with the highest stake first."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._number = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap; callers with one stake by arrival

    @asynccontextmanager
    async def turn(self, stake: float) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the context."""
        await self._acquire(stake)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, stake: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-stake, next(self._number), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted at the same time
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
