"""The reporter: started by each desktop, it tells the worker of this computer when its session was last used.

``python -m loopline_worker.presence`` (``loopline owner report``) runs until the session ends. It is for a
worker that is a service of the system; a worker of the desktop's own user sees all of this itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.gamepads import Gamepads
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.mutter import Mutter
from loopline_worker.presence.probe import Probe
from loopline_worker.presence.session_reports import SessionReport
from loopline_worker.presence.wayland import Wayland
from loopline_worker.presence.x11 import X11
from loopline_worker.task_group import TaskGroup

SOCKET = "/run/loopline/sessions"
_AGAIN_S = 10.0
_EVERY_S, _WHILE_TASKS_RUN_S = 5.0, 0.1
_ASK_DESKTOP_EVERY_S = 5.0
_ANSWER_WITHIN_S = 5.0
_MOST_BYTES = 4096
_IDLE = 8
"""GNOME's flag for what keeps the screen on."""


class Desktop:
    """Signs of the desktop: it is locked, or a program keeps its screen on (a film, a call, a presentation)."""

    def __init__(self) -> None:
        self.is_locked = False
        self.is_inhibited = False

    async def watch(self) -> NoReturn:
        """Ask the session's bus every few seconds. What does not answer is not so."""
        while True:
            with suppress(Exception):  # a library may raise anything about a broken peer
                async with Bus.open(of_system=False) as bus:
                    while True:
                        await self._ask(bus)
                        await asyncio.sleep(_ASK_DESKTOP_EVERY_S)
            self.is_locked = self.is_inhibited = False
            await asyncio.sleep(_AGAIN_S)

    async def _ask(self, bus: Bus) -> None:
        gnome, kde = "org.gnome.ScreenSaver", "org.freedesktop.ScreenSaver"
        self.is_locked = await _says(bus, gnome, "/org/gnome/ScreenSaver", gnome, "GetActive") or await _says(
            bus, kde, "/org/freedesktop/ScreenSaver", kde, "GetActive"
        )
        manager = "org.gnome.SessionManager"
        self.is_inhibited = await _says(bus, manager, "/org/gnome/SessionManager", manager, "IsInhibited", "u", _IDLE)


async def _says(
    bus: Bus, service: str, path: str, interface: str, member: str, signature: str = "", *body: int
) -> bool:
    try:
        return await bus.ask(service, path, interface, member, signature, *body) is True
    except (BusError, TimeoutError):
        return False


class Reporter:
    """Speaks to the worker's socket, and connects anew whenever the worker comes back."""

    def __init__(self, socket: str, detector: IdleDetector, desktop: Desktop) -> None:
        self._socket = socket
        self._detector = detector
        self._desktop = desktop

    async def run(self) -> NoReturn:
        """Report until the session ends."""
        while True:
            with suppress(OSError, ValueError, EOFError, TimeoutError):
                await self._report()
            await asyncio.sleep(_AGAIN_S)

    async def _report(self) -> NoReturn:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=_MOST_BYTES)
        try:
            while True:
                self._detector.stirred.clear()
                writer.write(json.dumps({"do": "report", **self._state().to_json()}).encode() + b"\n")
                async with asyncio.timeout(_ANSWER_WITHIN_S):
                    answer = json.loads(await reader.readuntil())
                await self._until_next(bool(answer["watch"]))
        finally:
            writer.close()

    def _state(self) -> SessionReport:
        idle_s = self._detector.look().idle_s
        return SessionReport(idle_s, self._desktop.is_locked, self._desktop.is_inhibited)

    async def _until_next(self, tasks_run: bool) -> None:
        """Wait for the time of the next report; while tasks run, for an input."""
        loop = asyncio.get_running_loop()
        end, before_s = loop.time() + _EVERY_S, self._detector.look().certain_idle_s
        while (left_s := end - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _WHILE_TASKS_RUN_S) if tasks_run else left_s):
                    await self._detector.stirred.wait()
                    return
            idle_s = self._detector.look().certain_idle_s
            if idle_s < before_s:
                return
            before_s = idle_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Report until the session ends."""
    named = sys.argv[1:] if arguments is None else arguments
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(named[0] if named else SOCKET))
    return 0


async def _main(socket: str) -> None:
    detector, desktop = IdleDetector(_probes()), Desktop()
    async with TaskGroup() as task_group:
        detector.listen(task_group)
        task_group.start(desktop.watch())
        await Reporter(socket, detector, desktop).run()


def _probes() -> list[Probe]:
    """Return the probes of this session's own desktop: other displays have reporters of their own."""
    return [Mutter(), Wayland(), X11(sockets=os.devnull, listening=os.devnull), Gamepads()]


if __name__ == "__main__":  # as desktop entries of earlier installations have it
    sys.exit(main())
