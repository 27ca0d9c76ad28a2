"""The owner's page, served on the loopback interface.

Other users of this computer and pages of the web can reach a loopback port too. So every address begins with a
secret that only this user can read (a file in the agent's data folder), another one at every start; names other than
loopback's are refused (a web page may have its own name point here), and so is what another page sends. The page runs
no script.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from aiohttp import web

from worker.owner.page import STYLE_HASH, render
from worker.owner.state import Watcher
from worker.pause import end_of

log = logging.getLogger(__name__)

ADDRESS_FILE = "owner-page"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src '{STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_MOST_BYTES = 4096
_MOST_CONNECTIONS = 16
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OwnerServer:
    """Up from ``open`` to ``close``; where it is, is said in the file ADDRESS_FILE of the data folder."""

    def __init__(self, folder: Path, watcher: Watcher, port: int = 0) -> None:
        self._folder = folder
        self._watcher = watcher
        self._port = port
        self._secret = secrets.token_urlsafe(32)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/{self._secret}/"

    async def open(self) -> None:
        """An agent whose page cannot be had (its port is taken, the disk is full) says so and works without.

        First of all the address that a killed agent left goes: whoever has its port now must not be asked there.
        """
        self._forget_address()
        app = web.Application(client_max_size=_MOST_BYTES, middlewares=[self._guard])
        app.router.add_get("/{secret}/", self._show)
        app.router.add_get("/{secret}/state", self._tell)
        app.router.add_post("/{secret}/pause", self._pause)
        app.router.add_post("/{secret}/resume", self._resume)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._admit, "127.0.0.1", self._port, backlog=_MOST_CONNECTIONS
            )
            self._port = self._listener.sockets[0].getsockname()[1]
            _write_privately(self._folder / ADDRESS_FILE, self.address)
        except OSError as error:
            log.warning("no owner's page: %s", error)
            self._forget_address()  # whole or not at all
            return
        log.info("the owner's page: `loopline owner` shows it and says where it is")

    async def close(self) -> None:
        self._forget_address()
        if self._listener:
            self._listener.close()
        if self._runner:
            await self._runner.cleanup()

    def _admit(self) -> asyncio.BaseProtocol:
        """For one more connection the oldest makes way: silent ones may not take the agent's file descriptors."""
        assert self._runner
        assert self._runner.server
        for oldest in self._runner.server.connections[: 1 - _MOST_CONNECTIONS]:
            oldest.force_close()
        return self._runner.server()

    def _forget_address(self) -> None:
        try:
            (self._folder / ADDRESS_FILE).unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove the owner's page's address: %s", error)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._is_owner(request):
            return web.Response(status=404, text="not found\n", headers=_HEADERS)
        answer = await handler(request)
        answer.headers.update(_HEADERS)
        return answer

    def _is_owner(self, request: web.Request) -> bool:
        origins = {f"http://{name}:{self._port}" for name in ("127.0.0.1", "localhost")}
        origin = request.headers.get("Origin")
        return (
            f"http://{request.host}" in origins
            and (origin is None or origin in origins)
            and request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
            and hmac.compare_digest(request.match_info.get("secret", "").encode(), self._secret.encode())
        )

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(text=render(self._watcher.state()), content_type="text/html")

    async def _tell(self, request: web.Request) -> web.Response:
        return self._state()

    async def _pause(self, request: web.Request) -> web.StreamResponse:
        words = str((await request.post()).get("for", ""))
        try:
            self._watcher.pause(end_of(words, time.time()))
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        log.info("the owner paused this worker: %s", words)
        return self._done(request)

    async def _resume(self, request: web.Request) -> web.StreamResponse:
        self._watcher.resume()
        log.info("the owner resumed this worker")
        return self._done(request)

    def _done(self, request: web.Request) -> web.Response:
        """Back to the page, or the new state for a program."""
        if request.headers.get("Accept") == "application/json":
            return self._state()
        return web.Response(status=303, headers={"Location": f"/{self._secret}/"})

    def _state(self) -> web.Response:
        return web.json_response(text=json.dumps(asdict(self._watcher.state())))


def _write_privately(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{text}\n", "ascii")
