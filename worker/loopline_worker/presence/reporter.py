"""The reporter: started by each desktop, it tells the worker of this computer when its session was last used.

``python -m loopline_worker.presence`` (``loopline owner report``) runs until the session ends. It is for a
worker that is a service of the system; a worker of the desktop's own user sees all of this itself.

Every desktop runs one while a user is logged in, so it loads little: without asyncio and dataclasses it needs three
fifths of the memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.desktop import Desktop
from loopline_worker.presence.gamepads import Gamepads
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.mutter import Mutter
from loopline_worker.presence.probe import Probe
from loopline_worker.presence.session_lock import SessionLock
from loopline_worker.presence.session_reports import SessionReport
from loopline_worker.presence.waiting.local_connection import LocalConnection
from loopline_worker.presence.waiting.poll_loop import Bell, PollLoop
from loopline_worker.presence.waiting.routine import Routine, pause
from loopline_worker.presence.wayland import Wayland
from loopline_worker.presence.x11 import X11

SOCKET = "/run/loopline/sessions"
_AGAIN_S = 10.0
_EVERY_S, _WHILE_TASKS_RUN_S = 5.0, 0.1
_ANSWER_WITHIN_S = 5.0
_MOST_BYTES = 4096


class Reporter:
    """Speaks to the worker's socket, and reconnects when the worker comes back."""

    def __init__(self, socket: str, detector: IdleDetector, desktop: Desktop, lock: SessionLock) -> None:
        self._socket = socket
        self._detector = detector
        self._desktop = desktop
        self._stirred = Bell()
        self._lock = lock

    def stir(self) -> None:
        """Report at once: there was an input."""
        self._stirred.ring()

    def run(self) -> Routine[NoReturn]:
        """Report until the session ends."""
        while True:
            with suppress(OSError, ValueError, EOFError):
                yield from self._report()
            self._lock.set(is_wanted=False)
            yield from pause(_AGAIN_S)

    def _report(self) -> Routine[NoReturn]:
        with LocalConnection(self._socket) as worker:
            while True:
                self._stirred.silence()
                worker.send(json.dumps({"do": "report", **self._state().to_json()}).encode() + b"\n")
                answer = yield from worker.line(_MOST_BYTES, time.monotonic() + _ANSWER_WITHIN_S)
                tasks_run, keep_awake = _parsed(answer)
                self._lock.set(keep_awake)
                yield from self._until_next(tasks_run)

    def _state(self) -> SessionReport:
        idle_s = self._detector.look().idle_s
        return SessionReport(idle_s, self._desktop.is_locked, self._desktop.is_inhibited)

    def _until_next(self, tasks_run: bool) -> Routine[None]:
        """Wait for the time of the next report, or for an input; while tasks run, look for one too."""
        end, before_s = time.monotonic() + _EVERY_S, self._detector.look().certain_idle_s
        while (now := time.monotonic()) < end:
            if (yield from self._stirred.rings(min(end, now + _WHILE_TASKS_RUN_S) if tasks_run else end)):
                return
            idle_s = self._detector.look().certain_idle_s
            if idle_s < before_s:
                return
            before_s = idle_s


def _parsed(answer: bytes) -> tuple[bool, bool]:
    """Return whether tasks run, and whether they need the computer awake. Raises ValueError for a refusal."""
    match json.loads(answer):
        case {"watch": bool(watch), "keep_awake": bool(keep_awake)}:
            return watch, keep_awake
        case refusal:
            raise ValueError(f"the worker refuses: {refusal}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Report until the session ends."""
    named = sys.argv[1:] if arguments is None else arguments
    detector, desktop, lock = IdleDetector(_probes()), Desktop(), SessionLock()
    reporter = Reporter(named[0] if named else SOCKET, detector, desktop, lock)
    with suppress(KeyboardInterrupt):
        PollLoop().run(*detector.listen(reporter.stir), desktop.watch(), lock.hold(), reporter.run())
    return 0


def _probes() -> list[Probe]:
    """Return the probes of this session's own desktop: other displays have reporters of their own."""
    return [Mutter(), Wayland(), X11(sockets=os.devnull, listening=os.devnull), Gamepads()]


if __name__ == "__main__":  # as desktop entries of earlier installations have it
    sys.exit(main())
