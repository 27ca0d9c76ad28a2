"""A WebSocket to the master: frames out at once, frames in by callback.

Lighter than an HTTP library's: an agent that has nothing to do holds no more than this. (What fetches and sends files
is loaded with the first of them.)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from loopline_shared.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    NORMAL_CLOSE,
    PING,
    PONG,
    IncomingFrames,
    close_payload,
    close_reason,
    frame_of,
)
from loopline_worker.link.upgrade import Upgrade, UpgradeError

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"http": 80, "https": 443}
_MASK_BYTES = 4
_NEXT_ADDRESS_S = 0.25
"""A name may have an address that never answers (IPv6 of half a network) before one that does."""


class LostError(Exception):
    """The connection is over, for this reason."""


class WebSocket(asyncio.Protocol):
    """WebSocket that calls ``on_frame`` with each message; an error there ends it, and is raised by ``ended``."""

    def __init__(self, limit_bytes: int) -> None:
        self.on_frame: Callable[[bytes], None] = _ignore
        self.on_writable: Callable[[], None] = _nothing
        self._writable = asyncio.Event()
        self._writable.set()
        self._reader = IncomingFrames(limit_bytes)
        self._upgrade: Upgrade | None = Upgrade()  # until the server has answered
        self._transport: asyncio.Transport | None = None
        self._has_closed = False  # nothing is sent after the frame that says so
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()

    @classmethod
    async def connect(
        cls, url: str, headers: Callable[[], Mapping[str, str]], limit_bytes: int, tls: SSLContext | None = None
    ) -> WebSocket:
        """Connect; messages have at most ``limit_bytes``. Raises RejectedError, LostError or OSError.

        ``headers`` is called once the server accepts connections; by then a starting master has written its token.
        """
        parts = urlsplit(url)
        loop, port = asyncio.get_running_loop(), parts.port or _PORTS[parts.scheme]
        _, socket = await loop.create_connection(
            lambda: cls(limit_bytes), parts.hostname or "", port, ssl=tls, happy_eyeballs_delay=_NEXT_ADDRESS_S
        )
        try:
            await socket._open(parts.netloc.rpartition("@")[2], parts.path, headers())
        except BaseException:
            socket.drop()
            raise
        return socket

    async def _open(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        assert self._transport
        assert self._upgrade
        try:
            self._transport.write(self._upgrade.request(host, path, headers))
        except UpgradeError as error:
            raise LostError(str(error)) from None
        await self._opened

    @property
    def own_address(self) -> str:
        """Local address of the connection."""
        return str(self._transport.get_extra_info("sockname")[0]) if self._transport else ""

    @property
    def is_over(self) -> bool:
        """True once the connection has ended."""
        return self._ended.done()

    @property
    def is_writable(self) -> bool:
        """True if the transport takes more; a frame that is sent all the same waits in memory."""
        return self._writable.is_set()

    async def drain(self) -> None:
        """Wait until the transport takes more."""
        await self._writable.wait()

    def send(self, frame: bytes) -> None:
        """Send a frame. Does nothing if the connection is over: ``ended`` says so."""
        self._send(BINARY, frame)

    async def ended(self) -> None:
        """Wait for the end of the connection. Raises its reason."""
        await asyncio.shield(self._ended)

    async def until(self, done: asyncio.Future[Any]) -> None:
        """Wait for a future. Raises the reason if the connection ends before."""
        await asyncio.wait([done, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            await self.ended()

    def end(self, error: BaseException) -> None:
        """End the connection for this reason."""
        for future in (self._opened, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved
        if self._transport and not self._transport.is_closing():  # CPython 3.11.2 cannot abort TLS after two closes
            self._transport.close()

    async def close(self, within_s: float) -> None:
        """Close the connection in order, waiting at most ``within_s`` for the answer."""
        self._say_closed(close_payload(NORMAL_CLOSE))
        try:
            await asyncio.wait([self._ended], timeout=within_s)
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self.end(LostError("closed"))
        if self._transport:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """End with the error of the transport."""
        self.end(error or LostError("the master closed the link"))

    def pause_writing(self) -> None:
        """Note that the transport takes no more."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that the transport takes more again."""
        self._writable.set()
        self.on_writable()

    def data_received(self, data: bytes) -> None:
        """Take in bytes. An error ends the connection."""
        try:
            if self._upgrade:
                data = self._answered(self._upgrade, data)
            for kind, payload in self._reader.feed(data):
                if self._ended.done():
                    return
                if kind <= BINARY:
                    self.on_frame(payload)
                else:
                    self._control(kind, payload)
        except UpgradeError as error:
            self.end(LostError(f"the master speaks no WebSocket: {error}"))
        except Exception as error:
            self.end(error)

    def eof_received(self) -> None:
        """End, because the master closed its side."""
        self.end(LostError("the master closed the link"))

    def _answered(self, upgrade: Upgrade, data: bytes) -> bytes:
        """Take in the answer to the request, or a piece of it. Return what follows it."""
        rest = upgrade.feed(data)
        if rest is None:
            return b""
        self._upgrade = None
        if not self._opened.done():
            self._opened.set_result(None)
        return rest

    def _control(self, kind: int, payload: bytes) -> None:
        if kind == PING:
            self._send(PONG, payload)
        elif kind == CLOSE:
            self._say_closed(payload[:2])
            self.end(LostError(f"the master closed the link ({close_reason(payload)})"))

    def _say_closed(self, payload: bytes) -> None:
        self._send(CLOSE, payload)
        self._has_closed = True

    def _send(self, kind: int, payload: bytes) -> None:
        if self._transport and not (self._has_closed or self._transport.is_closing()):
            self._transport.write(frame_of(payload, kind, os.urandom(_MASK_BYTES)))


def _ignore(frame: bytes) -> None: ...
def _nothing() -> None: ...
