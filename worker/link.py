"""The link to the master: opened again whenever it is lost, forever."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NoReturn, Protocol

import aiohttp

from shared.errors import LooplineError, ProtocolError
from shared.protocol import codec
from shared.protocol.messages import MAX_FRAME_BYTES, MAX_READS, Assign, Read, Refused, Welcome, Wrote
from shared.protocol.session import WorkerSession
from worker.gate import Gate

log = logging.getLogger(__name__)

_OPEN_WITHIN_S = 10.0
_CLOSE_WITHIN_S = 1.0
_SHORTEST_PAUSE_S = 0.05


class LinkLostError(Exception):
    """Why a connection is over."""


class Speaker(Protocol):
    """Who speaks over the link."""

    news: asyncio.Event
    """Set when a Report is due at once."""

    def new_session(self) -> WorkerSession: ...
    async def settled(self) -> None: ...
    def assigned(self, assign: Assign) -> None: ...
    def report(self, session: WorkerSession) -> bytes: ...
    async def wrote(self, read: Read) -> Wrote: ...


class Link:
    """One connection at a time. A refusal ends it only where the master has never yet let this agent in."""

    def __init__(self, gate: Gate, speaker: Speaker) -> None:
        self.is_open = False
        self._lease_s = math.inf
        self._heard_at = -math.inf
        self._gate = gate
        self._speaker = speaker
        self._backoff = gate.backoff()
        self._was_welcome = False
        self._complaint = ""

    @property
    def has_been_silent(self) -> bool:
        """For so long that the master may have given elsewhere what it had sent here."""
        return time.monotonic() - self._heard_at > self._lease_s

    async def keep(self) -> NoReturn:
        """Stay connected; LooplineError where the first connection is refused."""
        while True:
            try:
                await self._connect_once()
            except LooplineError as refusal:
                if not self._was_welcome:
                    raise
                self._complain(refusal.message, self._backoff.max_s)
                await asyncio.sleep(self._backoff.max_s)
            except (LinkLostError, ProtocolError, aiohttp.ClientError, OSError, TimeoutError) as error:
                pause_s = self._backoff.next_s()
                self._complain(str(error) or "no answer", pause_s)
                await asyncio.sleep(pause_s)

    async def _connect_once(self) -> NoReturn:
        async with self._open() as socket:
            session = self._speaker.new_session()
            async with asyncio.timeout(_OPEN_WITHIN_S):
                await socket.send_bytes(session.hello())
                welcome = await self._be_welcomed(socket, session)
            log.info("connected to %s", self._gate.master)
            self._backoff.reset()
            self._complaint = ""
            self._was_welcome = self.is_open = True
            self._lease_s, self._heard_at = welcome.lease_s, time.monotonic()
            async with _Answers(socket, self._speaker) as answers:
                reporting = asyncio.create_task(self._report(socket, session, welcome))
                listening = asyncio.create_task(self._listen(socket, session, welcome, answers))
                try:
                    await _first_to_fail(reporting, listening)
                finally:
                    self.is_open = False

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                socket = await self._gate.http.ws_connect(
                    self._gate.address("link"),
                    headers=self._gate.headers(),
                    compress=0,
                    max_msg_size=MAX_FRAME_BYTES,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise self._gate.refusal(error.status) or LinkLostError(
                f"{self._gate.master} answered HTTP {error.status}: is it a Loopline master?"
            ) from None
        try:
            yield socket
        finally:
            with suppress(TimeoutError):  # not wait_for: in Python 3.11 it may lose a cancellation
                async with asyncio.timeout(_CLOSE_WITHIN_S):
                    await socket.close()

    async def _be_welcomed(self, socket: aiohttp.ClientWebSocketResponse, session: WorkerSession) -> Welcome:
        answer = session.receive(_frame(await socket.receive()))
        if isinstance(answer, Refused):
            message = f"{self._gate.master} refused this worker: {answer.message}"
            raise LooplineError(answer.code, message, answer.hint, 403)
        if not isinstance(answer, Welcome):
            raise ProtocolError("the master did not say welcome")
        return answer

    async def _report(
        self, socket: aiohttp.ClientWebSocketResponse, session: WorkerSession, welcome: Welcome
    ) -> NoReturn:
        """At once where there is news, and often enough for the master to know that we are alive."""
        pause_s = max(welcome.report_every_s, _SHORTEST_PAUSE_S)
        while True:
            self._speaker.news.clear()
            await self._speaker.settled()
            await socket.send_bytes(self._speaker.report(session))
            with suppress(TimeoutError):  # not wait_for: in Python 3.11 it may lose a cancellation
                async with asyncio.timeout(pause_s):
                    await self._speaker.news.wait()

    async def _listen(
        self, socket: aiohttp.ClientWebSocketResponse, session: WorkerSession, welcome: Welcome, answers: _Answers
    ) -> NoReturn:
        """Every Report is answered: a master that is silent for a lease is not there any more."""
        patience_s = max(welcome.lease_s, welcome.report_every_s, 1.0)
        while True:
            try:
                frame = _frame(await socket.receive(patience_s))
            except TimeoutError:
                raise LinkLostError(f"{self._gate.master} has been silent for {patience_s:g} s") from None
            self._heard_at = time.monotonic()
            message = session.receive(frame)
            if isinstance(message, Assign):
                self._speaker.assigned(message)
            elif isinstance(message, Read):
                answers.begin(message)

    def _complain(self, reason: str, pause_s: float) -> None:
        """Once for each reason: an absent master must not fill the log."""
        level = logging.DEBUG if reason == self._complaint else logging.WARNING
        self._complaint = reason
        log.log(level, "not connected: %s; trying again in %.1f s", reason, pause_s)


class _Answers:
    """What the master wants to read: each question is answered when there is something to say."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, speaker: Speaker) -> None:
        self._socket = socket
        self._speaker = speaker
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> _Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()

    def begin(self, read: Read) -> None:
        if len(self._tasks) >= MAX_READS:
            raise ProtocolError(f"more than {MAX_READS} questions at once")
        task = asyncio.create_task(self._answer(read))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, read: Read) -> None:
        with suppress(OSError, aiohttp.ClientError):  # the link is going: whoever asked will ask again
            await self._socket.send_bytes(codec.encode(await self._speaker.wrote(read)))


def _frame(message: aiohttp.WSMessage) -> bytes:
    """What a message holds; LinkLostError where it says that the connection is over."""
    if message.type is aiohttp.WSMsgType.BINARY:
        return bytes(message.data)
    if message.type is aiohttp.WSMsgType.TEXT:
        return str(message.data).encode()
    said = f" ({message.extra or message.data})" if message.data else ""
    raise LinkLostError(f"the master closed the link{said}")


async def _first_to_fail(*tasks: asyncio.Task[NoReturn]) -> NoReturn:
    """Let tasks run that only end by an exception, and raise the first."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raise done.pop().exception() or AssertionError("endless")
