"""The web application: the REST API, the links and the page, on one port."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from loopline_master.certificates.encryption import Encryption
from loopline_master.http.api_docs import ApiDocument
from loopline_master.http.edge.listener import accepting
from loopline_master.http.edge.undecided import Undecided
from loopline_master.http.incidents import Incidents
from loopline_master.http.late_routes import LateRoutes
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.operations import PARTS, Parts, Serve, harden, problems
from loopline_master.http.routes import all_operations
from loopline_master.links import WorkerLinks
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.timings import HEADERS_WITHIN_S, STOP_WITHIN_S
from loopline_shared.errors import LooplineError

Address = IPv4Address | IPv6Address
HEADER = "X-Forwarded-For"


def api_document() -> ApiDocument:
    """Return the description of all operations."""
    return ApiDocument(_document)


def _document() -> str:
    from loopline_master.http.openapi import document  # late, for a quicker start

    return json.dumps(document(all_operations()))


def web_app(parts: Parts) -> web.Application:
    """Return the application, which serves its handlers the parts that their signatures name."""
    proxies = parts[MasterSettings].proxy
    app = web.Application(
        middlewares=[
            *([behind_proxies({*proxies})] if proxies else []),
            problems,
            _check_head,
            *([_confirmed] if parts[Store].is_remote else []),
        ],
        client_max_size=parts[MasterSettings].limits.max_body_bytes,
    )
    app[PARTS] = parts
    app.on_response_prepare.append(harden)
    app.on_shutdown.append(_disconnect)
    parts.add(LateRoutes(app.router, parts), Undecided(), Incidents())
    return app


@web.middleware
async def _check_head(request: web.Request, handler: Serve) -> web.StreamResponse:
    """Free the connection's undecided place, and refuse a compressed body.

    Our clients never compress one, and anyone without a token could send a decompression bomb.
    """
    request.config_dict[PARTS][Undecided].decide(request.transport)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        hint = "send it as it is, without Content-Encoding"
        raise LooplineError("encoded_body", "a body must not be compressed or encoded", hint, status=415)
    return await handler(request)


@web.middleware
async def _confirmed(request: web.Request, handler: Serve) -> web.StreamResponse:
    """Answer only while no other master can have taken over: otherwise the data here may be out of date."""
    if request.path != "/healthz":
        await request.config_dict[PARTS][Store].confirm()
    return await handler(request)


@asynccontextmanager
async def listening(settings: MasterSettings, app: web.Application) -> AsyncIterator[str]:
    """Serve the application; yields its address. Raises LooplineError if the port cannot be opened."""
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=STOP_WITHIN_S,
        keepalive_timeout=HEADERS_WITHIN_S,
        auto_decompress=False,  # encoded bodies are refused
    )
    await runner.setup()
    try:
        encryption = app[PARTS][Encryption]
        assert runner.server is not None
        async with AsyncExitStack() as stack:
            try:
                port = await stack.enter_async_context(
                    accepting(settings, encryption, runner.server, app[PARTS][Undecided])
                )
            except OSError as error:
                raise _cannot_listen(settings, error) from error
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield f"{'https' if encryption.is_on else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


def _cannot_listen(settings: MasterSettings, error: OSError) -> LooplineError:
    place = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        hint = "is a master running already? Stop it, or choose another port with --port"
        return LooplineError("port_in_use", f"{place} is in use by another program", hint)
    hint = "choose another --host or --port"
    return LooplineError("cannot_listen", f"cannot listen on {place}: {error.strerror}", hint)


async def _disconnect(app: web.Application) -> None:
    app[PARTS][OpenStreams].cancel_all()
    app[PARTS][WorkerLinks].close_all()


def behind_proxies(proxies: Collection[Address]) -> Middleware:
    """Return a middleware that gives requests from these proxies the address of their client.

    Without it, all users would have the proxy's address in the audit log and in the count of wrong secrets.
    """

    @web.middleware
    async def forwarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if HEADER in request.headers and _parse(request.remote or "") in proxies:
            client = client_of(request.headers.getall(HEADER), proxies)
            if client is not None:
                request = request.clone(remote=str(client))
        return await handler(request)

    return forwarded


def client_of(headers: Collection[str], proxies: Collection[Address]) -> Address | None:
    """Return the last address that belongs to no proxy; None if it cannot be read.

    Each proxy appends the address that it sees, so earlier entries were written by the client.
    """
    found = None
    for word in reversed(",".join(headers).split(",")):
        found = _parse(word.strip())
        if found is None or found not in proxies:
            return found
    return found


def _parse(word: str) -> Address | None:
    """Return an address, which may have a port; None if this is not one."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        found = ip_address(word.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
