"""The owner's page, served on the loopback interface.

Other users of this computer and web pages can reach a loopback port too. So every address starts with a secret that
only this user can read (a file in the agent's data folder), a new one at every start. Host names other than
loopback's are refused, because a web page may have its own name point here, and so are requests by other pages. The
page runs no script.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

from loopline_worker.owner.blockers import end_of
from loopline_worker.owner.state import OwnerControls
from loopline_worker.owner.visit import PageRequest, PageResponse, Visit

log = logging.getLogger(__name__)

ADDRESS_FILE = "owner-page"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_MOST_CONNECTIONS = 16


class OwnerServer:
    """Serves the page from ``open`` to ``close``. The file ADDRESS_FILE of the data folder has its address."""

    def __init__(self, folder: Path, controls: OwnerControls, port: int = 0) -> None:
        self._folder = folder
        self._controls = controls
        self._port = port
        self._secret = secrets.token_urlsafe(32)
        self._visits: dict[Visit, None] = {}
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Address of the page, secret included."""
        return f"http://127.0.0.1:{self._port}/{self._secret}/"

    async def open(self) -> None:
        """Start serving. If that is impossible (port taken, disk full), log it: the agent works without a page.

        The address that a killed agent left is removed first: another program may have its port now.
        """
        self._forget_address()
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._admit, "127.0.0.1", self._port, backlog=_MOST_CONNECTIONS
            )
            self._port = self._listener.sockets[0].getsockname()[1]
            _write_privately(self._folder / ADDRESS_FILE, self.address)
        except OSError as error:
            log.warning("cannot serve the owner page: %s", error)
            self._forget_address()  # complete or not at all
            return
        log.info("owner page: run `loopline owner` for the address")

    async def close(self) -> None:
        """Stop serving, and remove the address."""
        self._forget_address()
        if self._listener:
            self._listener.close()
        for visit in list(self._visits):
            visit.end()

    def _admit(self) -> asyncio.BaseProtocol:
        """Accept a connection, and close the oldest of too many: each takes one of the agent's descriptors."""
        for oldest in list(self._visits)[: 1 - _MOST_CONNECTIONS]:
            oldest.end()
        return Visit(self._respond, self._visits)

    def _forget_address(self) -> None:
        try:
            (self._folder / ADDRESS_FILE).unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove the address of the owner page: %s", error)

    def _respond(self, request: PageRequest) -> PageResponse:
        response = self._route(request) if self._is_owner(request) else None
        response = response or PageResponse(404, "not found\n")
        return replace(response, headers={**_HEADERS, **(response.headers or {})})

    def _is_owner(self, request: PageRequest) -> bool:
        origins = {f"http://{name}:{self._port}" for name in ("127.0.0.1", "localhost")}
        origin = request.headers.get("origin")
        return (
            f"http://{request.headers.get('host')}" in origins
            and (origin is None or origin in origins)
            and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
            and hmac.compare_digest(_parts(request)[0].encode(), self._secret.encode())
        )

    def _route(self, request: PageRequest) -> PageResponse | None:
        match request.method, _parts(request)[1]:
            case "GET", "":
                return self._show()
            case "GET", "state":
                return self._state()
            case "POST", "pause":
                return self._pause(request)
            case "POST", "resume":
                return self._resume(request)
        return None

    def _show(self) -> PageResponse:
        from loopline_worker.owner.page import POLICY, render  # only on request

        return PageResponse(200, render(self._controls.state()), "text/html", {"Content-Security-Policy": POLICY})

    def _pause(self, request: PageRequest) -> PageResponse:
        form = parse_qs(request.body.decode(errors="replace"))
        words = form.get("for", [""])[0]
        try:
            self._controls.pause(end_of(words, time.time()))
        except ValueError as error:
            return PageResponse(400, json.dumps({"error": str(error)}), "application/json")
        log.info("the owner paused this worker: %s", words)
        return self._done(request)

    def _resume(self, request: PageRequest) -> PageResponse:
        self._controls.resume()
        log.info("the owner resumed this worker")
        return self._done(request)

    def _done(self, request: PageRequest) -> PageResponse:
        """Redirect to the page, or return the new state to a program."""
        if request.headers.get("accept") == "application/json":
            return self._state()
        return PageResponse(303, headers={"Location": f"/{self._secret}/"})

    def _state(self) -> PageResponse:
        return PageResponse(200, json.dumps(self._controls.state().to_json()), "application/json")


def _parts(request: PageRequest) -> tuple[str, str]:
    """Return the secret in the path, and the rest."""
    _, secret, rest = [*request.path.split("/", 2), "", ""][:3]
    return secret, rest if request.path.count("/") > 1 else "?"


def _write_privately(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{text}\n", "ascii")
