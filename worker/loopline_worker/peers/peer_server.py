"""The peer server: one port, where workers with a grant fetch or deliver pieces."""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from loopline_shared.protocol.transfers import Dial, Grant
from loopline_worker.peers import handshake
from loopline_worker.peers.growing_file import GrowingFile
from loopline_worker.peers.handshake import HandshakeError, Opening
from loopline_worker.peers.peer_tls import PeerTls
from loopline_worker.peers.serving import Serving
from loopline_worker.peers.token_bucket import TokenBucket

log = logging.getLogger(__name__)

_MOST_SERVED = 8
"""Workers at once; a line of receivers takes one."""
_MOST_CALLERS = 64
"""Connections that have not shown a grant yet; more are closed at once."""
_HEARD_AT_ONCE = 16
_CONNECT_WITHIN_S = 5.0
_PAUSE_S = 1.0


class PeerHost(Protocol):
    """The agent, as far as the server asks it."""

    def secret_of(self, opening: Opening) -> bytes | None:
        """Return the secret of the grant that a caller shows; None if it must not be let in. Any thread asks."""

    def find(self, sha256: str) -> GrowingFile | None:
        """Return a file that is here, perhaps yet to be checked, or on its way; None if neither."""

    def take_over(self, grant: Grant, link: socket.socket) -> None:
        """Take over the connection of a worker that has dialled in to serve this grant."""

    def may_serve(self, sha256: str) -> bool:
        """True as long as the owner allows that the file is served."""

    def note_sent(self, count_bytes: int) -> None:
        """Count bytes sent."""


class PeerServer:
    """Serves files to workers that connect, and dials the others. ``limit`` is the owner's, for all together.

    With ``tls`` unencrypted connections are refused.
    """

    def __init__(self, host: PeerHost, limit: TokenBucket, tls: PeerTls | None = None) -> None:
        self.port: int | None = None
        """The open port; None: none is open."""
        self._host = host
        self._limit = limit
        self._tls = tls
        self._listener: socket.socket | None = None
        self._threads = ThreadPoolExecutor(_MOST_SERVED, "peer-server")
        self._serving: dict[Serving, Grant] = {}
        self._dialling: set[Grant] = set()
        self._hearing = ThreadPoolExecutor(_HEARD_AT_ONCE, "peer-callers")
        self._callers: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._ended_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Sent to workers since the start."""
        return self._ended_bytes + sum(serving.sent_bytes for serving in self._serving)

    @property
    def count(self) -> int:
        """The number of workers that are served now."""
        return len(self._serving)

    def open(self, address: str, port: int) -> None:
        """Listen on this address, and on another port if this one is taken. Raises OSError."""
        try:
            self._listener = _listener(address, port)
        except OSError as error:
            if not port:
                raise
            log.warning("port %d of %s cannot be opened (%s): any other is", port, address, error.strerror)
            self._listener = _listener(address, 0)
        self.port = self._listener.getsockname()[1]
        log.info("port %d of %s is open to other workers of the grid", self.port, address)

    async def run(self) -> None:
        """Accept callers until cancelled or closed; then the port closes."""
        assert self._listener
        self._accepting = asyncio.current_task()
        with self._listener as listener:
            while True:
                try:
                    link, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # too many open files, for one
                    log.warning("no worker can connect now: %s", error)
                    await asyncio.sleep(_PAUSE_S)
                else:
                    self._take_in(link)

    async def dial(self, order: Dial, secret: bytes) -> None:
        """Connect to a receiver and serve it, unless that is being done already."""
        grant = order.grant
        transfer = (grant.sha256, grant.receiver)
        if any((one.sha256, one.receiver) == transfer for one in (*self._serving.values(), *self._dialling)):
            return
        self._dialling.add(grant)
        try:
            self._serve(await asyncio.to_thread(_dialled, order, secret, self._tls), grant)
        except (OSError, HandshakeError) as error:
            log.info("worker %s cannot be dialled: %s", grant.receiver, error)
        finally:
            self._dialling.discard(grant)

    def close(self) -> None:
        """Close the port and all connections."""
        self.port = None
        if self._accepting:
            self._accepting.cancel()
        for serving in self._serving:
            serving.stop()
        for threads in (self._threads, self._hearing):
            threads.shutdown(wait=False, cancel_futures=True)

    def _take_in(self, link: socket.socket) -> None:
        if self.port is None or len(self._callers) >= _MOST_CALLERS:
            link.close()
            return
        caller = asyncio.create_task(self._answer(link))
        self._callers.add(caller)
        caller.add_done_callback(self._callers.discard)

    async def _answer(self, link: socket.socket) -> None:
        """Let a caller in that holds a grant; close the connection of any other without a word."""
        hearing = asyncio.get_running_loop().run_in_executor(
            self._hearing, handshake.listen, link, self._host.secret_of, self._tls
        )
        try:
            link, opening = await hearing
        except (HandshakeError, OSError) as error:
            log.info("a caller on the port for workers was turned away: %s", error)
            return
        except asyncio.CancelledError:  # nothing was read from it yet
            link.close()
            raise
        if self.port is None:
            link.close()
        elif opening.role == "serve":
            self._host.take_over(opening.grant, link)
        else:
            self._serve(link, opening.grant)

    def _serve(self, link: socket.socket, grant: Grant) -> None:
        file = self._host.find(grant.sha256) if self._host.may_serve(grant.sha256) else None
        if file is None or len(self._serving) >= _MOST_SERVED:
            link.close()
            return
        serving = Serving(link, file, self._limit, partial(self._host.may_serve, grant.sha256))
        self._serving[serving] = grant
        ending = asyncio.get_running_loop().run_in_executor(self._threads, serving.run)
        ending.add_done_callback(lambda _: self._has_ended(serving))

    def _has_ended(self, serving: Serving) -> None:
        del self._serving[serving]
        self._ended_bytes += serving.sent_bytes
        self._host.note_sent(serving.sent_bytes)


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=_MOST_CALLERS)
    listener.setblocking(False)
    return listener


def _dialled(order: Dial, secret: bytes, tls: PeerTls | None) -> socket.socket:
    link = socket.create_connection((order.host, order.port), _CONNECT_WITHIN_S)
    return handshake.call(link, "serve", order.grant, secret, tls)
