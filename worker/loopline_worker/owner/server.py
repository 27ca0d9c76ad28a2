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
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import parse_qs

from loopline_worker.owner.pause import end_of
from loopline_worker.owner.state import Watcher
from loopline_worker.owner.visit import Answer, Question, Visit

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
    """Up from ``open`` to ``close``; where it is, is said in the file ADDRESS_FILE of the data folder."""

    def __init__(self, folder: Path, watcher: Watcher, port: int = 0) -> None:
        self._folder = folder
        self._watcher = watcher
        self._port = port
        self._secret = secrets.token_urlsafe(32)
        self._visits: dict[Visit, None] = {}
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/{self._secret}/"

    async def open(self) -> None:
        """An agent whose page cannot be had (its port is taken, the disk is full) says so and works without.

        First of all the address that a killed agent left goes: whoever has its port now must not be asked there.
        """
        self._forget_address()
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
        for visit in list(self._visits):
            visit.end()

    def _admit(self) -> asyncio.BaseProtocol:
        """For one more connection the oldest makes way: silent ones may not take the agent's file descriptors."""
        for oldest in list(self._visits)[: 1 - _MOST_CONNECTIONS]:
            oldest.end()
        return Visit(self._answer, self._visits)

    def _forget_address(self) -> None:
        try:
            (self._folder / ADDRESS_FILE).unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove the owner's page's address: %s", error)

    def _answer(self, question: Question) -> Answer:
        answer = self._find(question) if self._is_owner(question) else None
        answer = answer or Answer(404, "not found\n")
        return replace(answer, headers={**_HEADERS, **(answer.headers or {})})

    def _is_owner(self, question: Question) -> bool:
        origins = {f"http://{name}:{self._port}" for name in ("127.0.0.1", "localhost")}
        origin = question.headers.get("origin")
        return (
            f"http://{question.headers.get('host')}" in origins
            and (origin is None or origin in origins)
            and question.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
            and hmac.compare_digest(_parts(question)[0].encode(), self._secret.encode())
        )

    def _find(self, question: Question) -> Answer | None:
        match question.method, _parts(question)[1]:
            case "GET", "":
                return self._show()
            case "GET", "state":
                return self._state()
            case "POST", "pause":
                return self._pause(question)
            case "POST", "resume":
                return self._resume(question)
        return None

    def _show(self) -> Answer:
        from loopline_worker.owner.page import POLICY, render  # when somebody looks

        return Answer(200, render(self._watcher.state()), "text/html", {"Content-Security-Policy": POLICY})

    def _pause(self, question: Question) -> Answer:
        form = parse_qs(question.body.decode(errors="replace"))
        words = form.get("for", [""])[0]
        try:
            self._watcher.pause(end_of(words, time.time()))
        except ValueError as error:
            return Answer(400, json.dumps({"error": str(error)}), "application/json")
        log.info("the owner paused this worker: %s", words)
        return self._done(question)

    def _resume(self, question: Question) -> Answer:
        self._watcher.resume()
        log.info("the owner resumed this worker")
        return self._done(question)

    def _done(self, question: Question) -> Answer:
        """Back to the page, or the new state for a program."""
        if question.headers.get("accept") == "application/json":
            return self._state()
        return Answer(303, headers={"Location": f"/{self._secret}/"})

    def _state(self) -> Answer:
        return Answer(200, json.dumps(asdict(self._watcher.state())), "application/json")


def _parts(question: Question) -> tuple[str, str]:
    """The secret, and what is asked for behind it; nobody's where it is none of our addresses."""
    _, secret, rest = [*question.path.split("/", 2), "", ""][:3]
    return secret, rest if question.path.count("/") > 1 else "?"


def _write_privately(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{text}\n", "ascii")
