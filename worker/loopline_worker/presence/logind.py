"""systemd-logind: who is logged in, by whatever means, and which sessions are locked or say that they are idle.

Desktops are careless about telling it of activity, so that it is believed where it says *locked*, *idle* or *nobody
there*, and where it says *active* of somebody else's session; of a desktop of our own that is merely not idle, it
cannot tell when there was input last. Text sessions are left to the terminals probe.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from loopline_worker.presence.bus import Bus, BusProbe
from loopline_worker.presence.probe import Reading

_SERVICE = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = "org.freedesktop.login1.Manager"
_SESSION = "org.freedesktop.login1.Session"
_EVERY_S = 5.0
_GRAPHICAL = ("x11", "wayland", "mir")


class Logind(BusProbe):
    name = "logind"
    is_of_system = True
    zero_is_in_use = True

    def __init__(self) -> None:
        super().__init__()
        self._uid = os.getuid()
        self._locked: dict[str, float] = {}  # since when we know
        self._empty_since = psutil.boot_time()  # when somebody was last seen to be logged in

    async def keep_up(self, bus: Bus, on_input: Callable[[], None]) -> None:
        changed = asyncio.Event()
        rule = f"sender='{_SERVICE}'"
        await bus.hear(rule, lambda *_: changed.set())
        while True:
            changed.clear()
            reading = self.judge(await _sessions(bus), time.time())
            self.learn(reading)
            if reading.idle_s is not None and reading.idle_s < _EVERY_S:
                on_input()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await changed.wait()

    def judge(self, sessions: Mapping[str, Mapping[str, Any]], now: float) -> Reading:
        """What the sessions' properties say, at ``now`` seconds since 1970."""
        people = {name: session for name, session in sessions.items() if _is_somebody(session)}
        self._locked = {
            name: self._locked.get(name, now) for name, session in people.items() if session.get("LockedHint")
        }
        desktops = {name: session for name, session in people.items() if session.get("Type") in _GRAPHICAL}
        if people:
            self._empty_since = now
        if not desktops:
            idle_s = now - self._empty_since
            return Reading(self.name, None if people else idle_s, not people, _without_desktop(bool(people)))
        idle = {name: self._idle_s(name, session, now) for name, session in desktops.items()}
        known = [idle_s for idle_s in idle.values() if idle_s is not None]
        words = ", ".join(f"session {name} {_words(idle_s)}" for name, idle_s in idle.items())
        return Reading(self.name, min(known, default=None), len(known) == len(idle), words)

    def _idle_s(self, name: str, session: Mapping[str, Any], now: float) -> float | None:
        """None: it is one of our own, and there may be somebody."""
        if session.get("IdleHint"):
            return max(0.0, now - float(session.get("IdleSinceHint", 0)) / 1e6)
        if name in self._locked:
            return now - self._locked[name]
        if session.get("User", (None,))[0] == self._uid:
            return None
        return 0.0


async def _sessions(bus: Bus) -> dict[str, dict[str, Any]]:
    listed = await bus.ask(_SERVICE, _PATH, _MANAGER, "ListSessions")
    return {entry[0]: await bus.properties(_SERVICE, entry[4], _SESSION) for entry in listed}


def _is_somebody(session: Mapping[str, Any]) -> bool:
    """Not a login screen, not one that is closing, and not one in the background, which gets no input."""
    in_front = session.get("Active", True) or session.get("Remote", False)
    is_user = str(session.get("Class")).startswith("user")  # user-early and user-light too
    return is_user and session.get("State") != "closing" and bool(in_front)


def _without_desktop(somebody: bool) -> str:
    return "only text sessions, which it leaves to the terminals" if somebody else "nobody is logged in"


def _words(idle_s: float | None) -> str:
    if idle_s is None:
        return "does not say when it was last used"
    return "is in use" if idle_s == 0 else f"has been idle or locked for {idle_s:.0f} s"
