"""The master's port: TLS or plain HTTP, distinguished by the client's first byte.

With TLS, plain HTTP is redirected to https, and refused if it carries a token.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, Literal
from weakref import WeakSet

from aiohttp import web
from yarl import URL

from loopline_master import timings
from loopline_master.certificates.encryption import Encryption
from loopline_master.http.edge.undecided import Newcomer, Undecided, group_of
from loopline_master.settings import MasterSettings
from loopline_shared.rest.bodies import Problem

log = logging.getLogger(__name__)

_HANDSHAKE = b"\x16"  # first byte of a TLS client, and never of an HTTP client
_BACKLOG = 1024
_TOO_MANY_FILES_PAUSE_S = 0.5
_LINGER_S = 1.0
"""Time for a client that is still sending its body to read the answer. A master that takes over waits for it."""
_LOOK_ANEW = 10_000
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Protocols = Callable[[], asyncio.Protocol]
Awaited = Literal["database", "bucket"]
"""Service that a master may wait for, at its start or after an outage."""


class Listener:
    """Accepts connections and hands each to the protocol for it."""

    def __init__(
        self,
        settings: MasterSettings,
        encryption: Encryption,
        *,
        app: Protocols,
        refusal: Protocols,
        undecided: Undecided,
    ) -> None:
        """``undecided`` is told by the HTTP server of the first request of each connection."""
        self._proxies = {*settings.proxy}
        self._encryption = encryption
        self._app, self._refusal = app, refusal
        self._undecided = undecided
        self._beginning: set[asyncio.Task[None]] = set()
        self._places = Places(settings.limits.max_connections)

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until it is cancelled."""
        while True:
            await self._undecided.wait_for_place()
            try:
                connection, place = await _next_of(listening)
            except OSError as error:  # no file left
                log.warning("cannot accept a connection: %s", error)
                if not self._undecided.drop_oldest():
                    await asyncio.sleep(_TOO_MANY_FILES_PAUSE_S)
                continue
            try:
                self._admit(connection, str(place[0]))
            except Exception:  # one connection must not shut the port
                log.exception("a connection from %s cannot be served", place[0])
                connection.close()

    def close(self) -> None:
        """Drop the connections that have sent no request yet."""
        for task in self._beginning:
            task.cancel()

    def _admit(self, connection: socket.socket, address: str) -> None:
        """Give a connection a place, or close it."""
        is_proxy, group = self._is_proxy(address), group_of(address)
        group = "" if is_proxy else group
        allowed = is_proxy if self._proxies else self._places.has_room(group, self._undecided.of_group(group))
        newcomer = self._undecided.add(group) if allowed else None
        if newcomer is None:
            connection.close()
            return
        task = asyncio.create_task(self._begin(connection, newcomer))
        newcomer.drop = task.cancel
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket, newcomer: Newcomer) -> None:
        """Hand a connection over, or close it."""
        try:
            connection.setblocking(False)
            async with asyncio.timeout(timings.HANDSHAKE_WITHIN_S):
                transport = await self._hand_over(connection)
            self._places.occupy(newcomer.group, transport)
            self._undecided.hand_over(newcomer, transport)
        except (OSError, TimeoutError):
            self._undecided.remove(newcomer)
            connection.close()
        except BaseException:
            self._undecided.remove(newcomer)
            connection.close()
            raise

    async def _hand_over(self, connection: socket.socket) -> asyncio.Transport:
        loop, context, protocol = asyncio.get_running_loop(), self._encryption.context, self._app
        if context is not None and await _first_byte(connection) != _HANDSHAKE:
            context, protocol = None, self._refusal
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        owned = socket.socket(fileno=connection.detach())
        try:
            transport, _ = await loop.connect_accepted_socket(protocol, owned, ssl=context)
        except BaseException:
            with suppress(OSError):
                owned.shutdown(socket.SHUT_RDWR)  # the loop closes it, which may still be reading
            raise
        return transport

    def _is_proxy(self, address: str) -> bool:
        found = ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        return found.is_loopback or (mapped or found) in self._proxies


class Places:
    """Counts the connections of each address, so that none takes all places.

    Loopback and proxies (an empty group) are not counted, because all users, or many test workers, may be there.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, WeakSet[asyncio.Transport]] = {}

    def has_room(self, group: str, undecided: int = 0) -> bool:
        """True if one more connection of this group may be opened. ``undecided``: number in their handshake."""
        if not group or len(self._open.get(group, ())) + undecided < self._most:
            return True
        self._open[group] = WeakSet(each for each in self._open.get(group, ()) if not each.is_closing())
        return len(self._open[group]) + undecided < self._most

    def occupy(self, group: str, transport: asyncio.Transport) -> None:
        """Count a connection until its transport is gone."""
        if not group:
            return
        if len(self._open) >= _LOOK_ANEW:
            self._open = {known: those for known, those in self._open.items() if those}
        self._open.setdefault(group, WeakSet()).add(transport)


async def _next_of(listening: socket.socket) -> tuple[socket.socket, Any]:
    """Accept a connection, and none once it is cancelled.

    The loop's own ``sock_accept`` may accept one while it is cancelled, which would stay open without an answer.
    """
    while True:
        with suppress(BlockingIOError, InterruptedError):
            return listening.accept()
        await _is_readable(listening)


async def _first_byte(connection: socket.socket) -> bytes:
    """Return the first byte without consuming it."""
    await _is_readable(connection)
    return connection.recv(1, socket.MSG_PEEK)


async def _is_readable(one: socket.socket) -> None:
    loop, came, file = asyncio.get_running_loop(), asyncio.Event(), one.fileno()
    loop.add_reader(file, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(file)


@asynccontextmanager
async def accepting(
    settings: MasterSettings, encryption: Encryption, app: Protocols, undecided: Undecided
) -> AsyncIterator[int]:
    """Accept connections for the block; yields the port. OSError if the port cannot be opened."""
    refusing = _brief(PlainRefusal(encryption))
    await refusing.setup()
    assert refusing.server is not None
    listener = Listener(settings, encryption, app=app, refusal=refusing.server, undecided=undecided)
    sockets = await _open(settings.host, settings.port)
    work = [asyncio.create_task(listener.accept(each)) for each in sockets]
    try:
        yield int(sockets[0].getsockname()[1])
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work)
        listener.close()
        for each in sockets:
            each.close()
        await refusing.cleanup()


@asynccontextmanager
async def standing_in(settings: MasterSettings, awaited: Awaited, cause: str = "") -> AsyncIterator[None]:
    """Answer for a master that waits for its database or bucket: health is reported, other requests get 503.

    ``cause``: why, in a few words. If the port cannot be opened, nothing happens: the master reports that itself.
    """
    runner = _brief(partial(_retry_later, awaited, cause))
    await runner.setup()
    assert runner.server is not None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        with suppress(OSError):
            encryption = Encryption(settings, is_waiting=True)
            await stack.enter_async_context(accepting(settings, encryption, runner.server, Undecided()))
        yield


def _brief(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> web.ServerRunner:
    """Return a server that answers before it has read a body, and does not wait for the rest when it stops."""
    server = web.Server(handler, access_log=None, lingering_time=_LINGER_S, auto_decompress=False)
    return web.ServerRunner(server, shutdown_timeout=_LINGER_S)


async def _retry_later(awaited: Awaited, cause: str, request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/healthz":
        return web.json_response({"status": "ok"})
    detail, hint = (
        f"the master waits for its {awaited}" + (f": {cause}" if cause else ""),
        "it continues by itself; try again in a moment",
    )
    problem = Problem(title="Away", status=503, detail=detail, code=f"{awaited}_away", hint=hint, errors=[])
    return web.Response(
        status=503,
        text=problem.model_dump_json(),
        content_type="application/problem+json",
        headers={"Retry-After": "1"},
    )


async def _open(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host."""
    loop, opened = asyncio.get_running_loop(), list[socket.socket]()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            opened.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                with suppress(OSError):
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = port or (opened[0].getsockname()[1] if len(opened) > 1 else 0)
            each.setblocking(False)
            each.bind((place[0], port, *place[2:]))
            each.listen(_BACKLOG)
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened


class PlainRefusal:
    """Answers plain HTTP on a TLS port. Browsers are redirected to https, but only to a name of this master.

    The Host header is not trusted: it may come from an attacker's link.
    """

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption
        self._names: set[str] = set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Health is reported to anyone."""
        if request.path == "/healthz":
            return web.json_response({"status": "ok"})
        there = f"https://{request.host}{request.raw_path}" if await self._is_ours(request) else ""
        is_safe = request.method in ("GET", "HEAD") and not request.headers.keys() & {"Authorization", "Upgrade"}
        if there and is_safe:
            return web.Response(status=308, headers={"Location": there})
        detail = "this master speaks TLS only" + (f": {there[:200]}" if there else "")
        hint = "use the line that `loopline token create` or `loopline token join` prints"
        problem = Problem(
            title="Upgrade Required", status=426, detail=detail, code="tls_required", hint=hint, errors=[]
        )
        headers = {"Upgrade": "TLS/1.3", "Connection": "close"}
        return web.Response(
            status=426, text=problem.model_dump_json(), content_type="application/problem+json", headers=headers
        )

    async def _is_ours(self, request: web.BaseRequest) -> bool:
        """True if the Host header names this computer, as its certificate does."""
        try:
            host = (URL(f"http://{request.host}").host or "").lower()
        except ValueError:
            return False
        here = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if here and host == str(here[0]).partition("%")[0]:
            return True
        self._names = self._names or set(await asyncio.to_thread(lambda: self._encryption.names))  # may ask the DNS
        return host in {name.lower() for name in self._names}
