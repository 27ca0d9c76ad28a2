"""The connection to the master, which is opened again whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.protocol.worker_link import MAX_FRAME_BYTES
from loopline_worker.link.conversation import Conversation, ConversationListener
from loopline_worker.link.http_client import HttpClient
from loopline_worker.link.websocket import LostError, RejectedError, WebSocket

log = logging.getLogger(__name__)

_OPEN_WITHIN_S = 10.0
_CLOSE_WITHIN_S = 1.0


class Link:
    """Link to the master. A refusal ends it only if the master has never accepted this agent."""

    def __init__(self, http_client: HttpClient, listener: ConversationListener) -> None:
        self._http_client = http_client
        self._listener = listener
        self._conversation: Conversation | None = None
        self._lease_s = math.inf
        self._heard_at = -math.inf
        self._backoff = http_client.backoff()
        self._was_welcome = False
        self._complaint = ""

    @property
    def is_open(self) -> bool:
        """True while the connection stands and the master has welcomed this agent."""
        return self._conversation is not None

    @property
    def has_been_silent(self) -> bool:
        """True if the master was silent for a lease: it may have given to others what it sent here."""
        return (
            time.monotonic() - (self._conversation.heard_at if self._conversation else self._heard_at) > self._lease_s
        )

    def speak(self) -> None:
        """Send a Report with all that happens before the loop comes round."""
        if self._conversation:
            self._conversation.speak()

    def speak_now(self) -> None:
        """Send a Report now, because all that happened together has been taken in."""
        if self._conversation:
            self._conversation.speak_now()

    def speak_soon(self) -> None:
        """Send a Report soon, unless one leaves before."""
        if self._conversation:
            self._conversation.speak_soon()

    async def keep(self) -> NoReturn:
        """Stay connected. Raises LooplineError if the first connection is refused."""
        while True:
            try:
                await self._connect_once()
            except LooplineError as refusal:
                if not self._was_welcome:
                    raise
                self._complain(refusal.message, self._backoff.max_s)
                await asyncio.sleep(self._backoff.max_s)
            except (LostError, ProtocolError, OSError, TimeoutError) as error:
                pause_s = self._backoff.next_s()
                self._complain(str(error) or "no answer", pause_s)
                await asyncio.sleep(pause_s)

    async def _connect_once(self) -> None:
        async with self._open() as socket:
            conversation = Conversation(socket, self._listener, self._http_client.master)
            async with asyncio.timeout(_OPEN_WITHIN_S):
                self._lease_s = await conversation.open()
            log.info("connected to %s", self._http_client.master)
            await self._listener.ready()
            self._backoff.reset()
            self._complaint = ""
            self._was_welcome, self._conversation = True, conversation
            try:
                conversation.begin()
                await socket.ended()
            finally:
                self._conversation, self._heard_at = None, conversation.heard_at
                conversation.end()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[WebSocket]:
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                address, headers, tls = (
                    self._http_client.address("link"),
                    self._http_client.headers(),
                    self._http_client.tls(),
                )
                socket = await WebSocket.connect(address, headers, MAX_FRAME_BYTES, tls)
        except RejectedError as error:
            raise self._http_client.refusal(error.status) or LostError(self._not_a_master(error)) from None
        try:
            yield socket
        finally:
            await socket.close(_CLOSE_WITHIN_S)

    def _not_a_master(self, answer: RejectedError) -> str:
        """Return the message for a server that is no master. A redirect is not followed: it would get our token."""
        said = f"{self._http_client.master} answered HTTP {answer.status}"
        if answer.location:
            return f"{said}, go to {answer.location[:200]!r}: if the master is there, name that address"
        return f"{said}: is it a Loopline master?"

    def _complain(self, reason: str, pause_s: float) -> None:
        """Log each reason once: an absent master must not fill the log."""
        level = logging.DEBUG if reason == self._complaint else logging.WARNING
        self._complaint = reason
        log.log(level, "not connected: %s; trying again in %.1f s", reason, pause_s)
