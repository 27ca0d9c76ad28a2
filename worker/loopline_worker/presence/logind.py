"""systemd-logind: logged-in users, locked and idle sessions, and resume after a suspend.

Desktops report their activity to logind carelessly. So *locked*, *idle* and *nobody logged in* are believed, and
*active* of another user's session. A session of our own user that is merely not idle has an unknown time of its last
input. Text sessions are left to the terminals probe. A login screen that was idle and is not any more has got input.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import psutil

from loopline_worker.host.boot_clock import steady
from loopline_worker.presence.bus import Bus, BusError, BusProbe
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.session_reports import SessionReports
from loopline_worker.presence.waiting.routine import Routine

_SERVICE = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = "org.freedesktop.login1.Manager"
_SESSION = "org.freedesktop.login1.Session"
_EVERY_S = 10.0
OURS = "Loopline"
"""Name of our own inhibitors, which are no sign of use."""
_GRAPHICAL = ("x11", "wayland", "mir")


class Logind(BusProbe):
    """Asks logind every few seconds, and whenever it reports a change."""

    name = "logind"
    is_of_system = True
    zero_is_in_use = True

    def __init__(self) -> None:
        super().__init__()
        self.reports: SessionReports | None = None  # of those sessions whose reporters speak to this worker
        self.people: frozenset[int] = frozenset()  # users who have a session that can get input
        self._uid = os.getuid()
        self._sessions: Mapping[str, Mapping[str, Any]] = {}  # as last read
        self._inhibitors: dict[int, str] = {}  # by user: a program that keeps the screen on
        self._locked: dict[str, float] = {}  # since when this is known
        self._idle: dict[str, tuple[float, float]] = {}  # by session: logind's hint, and the same by the steady clock
        self._idle_greeters: set[str] = set()  # sessions of login screens that were idle at least once
        self._empty_since = psutil.boot_time()  # when a user was last logged in

    def keep_up(self, bus: Bus, on_input: Callable[[], None]) -> Routine[NoReturn]:
        """Read the sessions, again and again."""

        def told(signal: str, body: tuple[Any, ...]) -> None:
            if signal == "PrepareForSleep" and body == (False,):
                on_input()

        yield from bus.subscribe(f"sender='{_SERVICE}'", told)
        while True:
            self._sessions, self._inhibitors = (yield from _sessions(bus)), (yield from _inhibitors(bus))
            reading = self.judge(self._sessions, steady())
            self.learn(reading)
            if reading.idle_s is not None and reading.idle_s < _EVERY_S:
                on_input()
            yield from bus.signalled(time.monotonic() + _EVERY_S)

    @property
    def is_at_greeter(self) -> bool:
        """True if an idle login screen is shown, which may suspend the computer by itself."""
        return any(one.get("IdleHint") for one in _greeters(self._sessions).values())

    def look(self) -> Reading:
        """Return the last reading with the changes reported since."""
        if self.reports is not None and self.is_up_to_date:
            return self.judge(self._sessions, steady())._replace(is_fresh=False)
        return super().look()

    def judge(self, sessions: Mapping[str, Mapping[str, Any]], now: float) -> Reading:
        """Turn the sessions' properties into a reading, at ``now`` seconds since 1970 by ``steady``."""
        people = {name: session for name, session in sessions.items() if _is_person(session)}
        self.people = frozenset(_user(session) for session in people.values())
        self._locked = {
            name: self._locked.get(name, now) for name, session in people.items() if session.get("LockedHint")
        }
        self._idle = {name: known for name, known in self._idle.items() if name in people}
        desktops = {name: session for name, session in people.items() if session.get("Type") in _GRAPHICAL}
        if people or self._is_greeter_used(sessions):
            self._empty_since = now
        if not desktops:
            idle_s = now - self._empty_since
            return Reading(self.name, None if people else idle_s, not people, _without_desktop(bool(people)))
        each = Counter(_user(session) for session in desktops.values())
        idle = {name: self._idle_s(name, session, now, each) for name, session in desktops.items()}
        known = [idle_s for idle_s in idle.values() if idle_s is not None]
        words = ", ".join(f"session {name} {_words(idle_s)}" for name, idle_s in idle.items())
        return Reading(self.name, min(known, default=None), len(known) == len(idle), words)

    def _is_greeter_used(self, sessions: Mapping[str, Mapping[str, Any]]) -> bool:
        """True if a login screen has got input. Many are never idle, so that alone is no sign of it."""
        greeters = _greeters(sessions)
        idle = {name for name, greeter in greeters.items() if greeter.get("IdleHint")}
        self._idle_greeters = (self._idle_greeters & greeters.keys()) | idle
        return bool(self._idle_greeters - idle)

    def _idle_s(
        self, name: str, session: Mapping[str, Any], now: float, sessions_of: Mapping[int, int]
    ) -> float | None:
        """Return the session's idle time; None for one of our own user, whose last input is unknown."""
        user = _user(session)
        if user in self._inhibitors and name not in self._locked:
            return 0.0
        reported = self.reports.idle_s(user, sessions_of[user]) if self.reports else None
        if reported is not None:
            return reported
        if session.get("IdleHint"):
            return max(0.0, now - self._idle_since(name, float(session.get("IdleSinceHint", 0)) / 1e6, now))
        if name in self._locked:
            return now - self._locked[name]
        if user == self._uid:
            return None
        return 0.0

    def _idle_since(self, name: str, hint: float, now: float) -> float:
        """Return since when a session is idle, by ``steady``; the hint is by the computer's clock."""
        known = self._idle.get(name)
        if known is None or known[0] != hint:
            known = self._idle[name] = hint, min(now, hint - steady.set_by_s)
        return known[1]


def _sessions(bus: Bus) -> Routine[dict[str, dict[str, Any]]]:
    sessions: dict[str, dict[str, Any]] = {}
    for entry in (yield from bus.ask(_SERVICE, _PATH, _MANAGER, "ListSessions")):
        sessions[entry[0]] = yield from bus.properties(_SERVICE, entry[4], _SESSION)
    return sessions


def _inhibitors(bus: Bus) -> Routine[dict[int, str]]:
    """Return who keeps the screen on, by user: a film, a call or a presentation does."""
    try:
        listed = yield from bus.ask(_SERVICE, _PATH, _MANAGER, "ListInhibitors")
    except BusError:
        return {}
    return {
        uid: who
        for what, who, _, mode, uid, _ in listed
        if mode == "block" and "idle" in what.split(":") and who != OURS
    }


def _greeters(sessions: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the login screens in front."""
    return {name: one for name, one in sessions.items() if one.get("Class") == "greeter" and one.get("Active")}


def _user(session: Mapping[str, Any]) -> int:
    return int(session.get("User", (-1,))[0])


def _is_person(session: Mapping[str, Any]) -> bool:
    """True for a user's session that can get input, unlike login screens, closing and background sessions."""
    in_front = session.get("Active", True) or session.get("Remote", False)
    is_user = str(session.get("Class")).startswith("user")  # user-early and user-light too
    return is_user and session.get("State") != "closing" and bool(in_front)


def _without_desktop(somebody: bool) -> str:
    return "only text sessions, which the terminals probe watches" if somebody else "nobody is logged in"


def _words(idle_s: float | None) -> str:
    if idle_s is None:
        return "does not report when it was last used"
    return "is in use" if idle_s == 0 else f"has been idle or locked for {idle_s:.0f} s"
