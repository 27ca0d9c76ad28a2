"""A WebSocket to the master: frames out at once, frames in by callback. The protocol itself is wsproto's.

Lighter than an HTTP library's: an agent that has nothing to do holds no more than this. (What fetches and sends files
is loaded with the first of them.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"http": 80, "https": 443}
_NEXT_ADDRESS_S = 0.25
"""A name may have an address that never answers (IPv6 of half a network) before one that does."""


class LostError(Exception):
    """The connection is over, for this reason."""


class RejectedError(Exception):
    """The server answered with an HTTP status, perhaps with another address, in place of a WebSocket."""

    def __init__(self, status: int, location: str = "") -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.location = location


class WebSocket(asyncio.Protocol):
    """WebSocket that calls ``on_frame`` with each message; an error there ends it, and is raised by ``ended``."""

    def __init__(self, limit_bytes: int) -> None:
        self.on_frame: Callable[[bytes], None] = _ignore
        self.on_writable: Callable[[], None] = _nothing
        self._writable = asyncio.Event()
        self._writable.set()
        self._limit_bytes = limit_bytes
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._size_bytes = 0
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()

    @classmethod
    async def connect(
        cls, url: str, headers: Callable[[], Mapping[str, str]], limit_bytes: int, tls: SSLContext | None = None
    ) -> WebSocket:
        """Connect; messages have at most ``limit_bytes``. Raises RejectedError, LostError or OSError.

        ``headers`` is asked once the server is there: one that starts now writes a token before it listens.
        """
        parts = urlsplit(url)
        loop, port = asyncio.get_running_loop(), parts.port or _PORTS[parts.scheme]
        _, socket = await loop.create_connection(
            lambda: cls(limit_bytes), parts.hostname or "", port, ssl=tls, happy_eyeballs_delay=_NEXT_ADDRESS_S
        )
        try:
            fields = [(name.encode(), value.encode()) for name, value in headers().items()]
            socket._send(Request(parts.netloc.rpartition("@")[2], parts.path, extra_headers=fields))
            await socket._opened
        except BaseException:
            socket.drop()
            raise
        return socket

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
        self._send(BytesMessage(frame))

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
                future.exception()  # whoever wants to know asks
        if self._transport:
            self._transport.close()

    async def close(self, within_s: float) -> None:
        """Close the connection in order, waiting so long at most for the answer."""
        self._send(CloseConnection(1000))
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
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                self._happened(event)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self.end(LostError(f"the master speaks no WebSocket: {error}"))
        except Exception as error:
            self.end(error)

    def eof_received(self) -> None:
        """End, because the master closed its side."""
        self.end(LostError("the master closed the link"))

    def _happened(self, event: Event) -> None:
        if isinstance(event, BytesMessage | TextMessage):
            self._collect(event)
        elif isinstance(event, AcceptConnection):
            if not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(event, RejectConnection):
            location = dict(event.headers).get(b"location", b"").decode("latin-1")
            self.end(RejectedError(event.status_code, location))
        elif isinstance(event, Ping):
            self._send(event.response())
        elif isinstance(event, CloseConnection):
            self._send(event.response())
            said = f" ({event.reason or event.code})"
            self.end(LostError(f"the master closed the link{said}"))

    def _collect(self, event: BytesMessage | TextMessage) -> None:
        """Take in a message, or a piece of one."""
        data = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        self._parts.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > self._limit_bytes:
            raise LostError(f"the master sent a message of more than {self._limit_bytes:,} bytes")
        if event.message_finished:
            frame, self._parts, self._size_bytes = b"".join(self._parts), [], 0
            self.on_frame(frame)

    def _send(self, event: Event) -> None:
        if self._transport and not self._transport.is_closing():
            try:
                self._transport.write(self._protocol.send(event))
            except LocalProtocolError as error:  # it is closing already
                self.end(LostError(str(error)))


def _ignore(frame: bytes) -> None: ...
def _nothing() -> None: ...
