"""The session server: a socket for local users to reach a worker that is a service of the system.

The kernel names the user at the other end (SO_PEERCRED). Only users with a session here are answered, and never a
task, regardless of its user. One line of JSON asks, one answers: reports of sessions, the state, a pause.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopline_shared.errors import LooplineError
from loopline_worker.owner.blockers import end_of
from loopline_worker.owner.owner_monitor import OwnerMonitor
from loopline_worker.owner.state import OwnerControls
from loopline_worker.presence.session_reports import SessionReport, SessionReports

log = logging.getLogger(__name__)

_MOST_BYTES = 4096
_MOST_CONNECTIONS, _MOST_OF_A_USER = 32, 8
_SILENCE_S = 60.0
_PAUSE_S = 0.01
"""Pause between two requests of a connection, so that none floods the agent."""
_ANSWER_WITHIN_S = 5.0


class SessionServer:
    """Serves the socket. ``may_ask`` says of a user whether they are answered."""

    def __init__(
        self, place: Path, controls: OwnerControls, reports: SessionReports, monitor: OwnerMonitor,
        may_ask: Callable[[int], bool],
    ) -> None:  # fmt: skip
        self._place = place
        self._controls = controls
        self._reports = reports
        self._monitor = monitor
        self._may_ask = may_ask
        self._connections: Counter[int] = Counter()  # by user
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start serving."""
        try:
            self._place.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._place, limit=_MOST_BYTES)
            self._place.chmod(0o666)  # permission depends on the peer's credentials, not on the file's mode
        except OSError as error:
            log.warning("sessions of this computer cannot report their input: %s", error)

    async def close(self) -> None:
        """Stop serving."""
        if self._server:
            self._server.close()
            with suppress(OSError):
                self._place.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = _peer(writer)
        try:
            if self._connections.total() < _MOST_CONNECTIONS and self._connections[uid] < _MOST_OF_A_USER:
                self._connections[uid] += 1
                try:
                    await self._answer_all(reader, writer, uid)
                finally:
                    self._connections[uid] -= 1
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the peer is gone, or sent no request
        finally:
            self._reports.forget(writer)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, uid: int) -> None:
        while True:
            async with asyncio.timeout(_SILENCE_S):
                line = await reader.readuntil()
            try:
                answer = self._answer(writer, uid, _parsed(line))
            except ValueError as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            await asyncio.sleep(_PAUSE_S)

    def _answer(self, connection: object, uid: int, request: dict[str, Any]) -> dict[str, Any]:
        if not self._may_ask(uid):
            raise ValueError("only those who are logged in at this computer are answered")
        match request.get("do"):
            case "report":
                if was_used := self._reports.note(connection, uid, SessionReport.from_json(request)):
                    self._monitor.nudge()
                keeps_awake = self._monitor.keeps_awake and not was_used
                return {"watch": self._monitor.watches, "keep_awake": keeps_awake}
            case "pause":
                self._controls.pause(end_of(str(request.get("for")), time.time()))
                log.info("user %d, who is logged in here, paused this worker: %.50s", uid, request.get("for"))
            case "resume":
                self._controls.resume()
                log.info("user %d, who is logged in here, resumed this worker", uid)
            case "state":
                pass
            case _:
                raise ValueError("expected to be asked for a report, state, pause or resume")
        return self._controls.state().to_json()


def ask(place: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the worker of this computer. Raises LooplineError if it does not answer, or refuses."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_ANSWER_WITHIN_S)
            link.connect(str(place))
            link.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(link.makefile("rb").readline())
    except (OSError, ValueError) as error:
        message = f"the worker of this computer does not answer at {place}: {error}"
        raise LooplineError("unreachable", message, "systemctl status loopline-worker says how it is") from None
    if "error" in answer:
        raise LooplineError("refused", f"the worker of this computer refuses: {answer['error']}")
    return answer


def has_place(place: Path) -> bool:
    """True if this worker may make the socket: the folder of a service of the system is its own."""
    return sys.platform == "linux" and os.access(place.parent, os.W_OK)


def people_but_tasks(is_here: Callable[[int], bool]) -> Callable[[int], bool]:
    """Return the permitted users: logged-in users and root, except the user of tasks."""
    own = os.getuid()
    return lambda uid: uid != own and (uid == 0 or is_here(uid))


def _peer(writer: asyncio.StreamWriter) -> int:
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    uid: int = struct.unpack("=3i", credentials)[1]
    return uid


def _parsed(line: bytes) -> dict[str, Any]:
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("expected a JSON object")
    return document
