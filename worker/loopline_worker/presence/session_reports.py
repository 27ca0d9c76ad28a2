"""Reports of this computer's sessions, for a worker that is a service of the system.

Such a worker cannot see a desktop's input itself. Each desktop starts a reporter, which runs as its user; the kernel
says who that is. A report speaks for the sessions of its own user alone (``logind.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

_COARSE_S = 0.01
_GOOD_FOR_S = 15.0
"""Age of a report that no longer counts: reporters speak every few seconds."""


class SessionReport(NamedTuple):
    """State of one session."""

    idle_s: float | None  # since its last input; None: the reporter cannot tell
    locked: bool = False
    inhibited: bool = False  # a film, a call or a presentation keeps the screen on

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SessionReport:
        """Return the report in a reporter's words. Raises ValueError for anything else."""
        idle_s, flags = document.get("idle_s"), [document.get(name, False) for name in ("locked", "inhibited")]
        if not (idle_s is None or (type(idle_s) in (int, float) and 0 <= idle_s < 1e9)):
            raise ValueError("idle_s is no time")
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError("locked and inhibited are true or false")
        return cls(idle_s, *flags)

    def to_json(self) -> dict[str, Any]:
        """Return the report for the socket."""
        return self._asdict()


class SessionReports:
    """The latest report on each connection, with the user that the kernel names at its other end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[object, tuple[int, float, SessionReport]] = {}

    def note(self, connection: object, uid: int, report: SessionReport) -> bool:
        """Keep a report in place of the last one on its connection. True if the session was used since that one."""
        _, at, last = self._latest.get(connection, (uid, 0.0, SessionReport(None)))
        now = self._clock()
        self._latest[connection] = (uid, now, report)
        return last.idle_s is None or _idle_s(report, 0.0) < _idle_s(last, now - at) - _COARSE_S

    def forget(self, connection: object) -> None:
        """Forget the reports of a closed connection."""
        self._latest.pop(connection, None)

    def idle_s(self, uid: int, sessions: int) -> float | None:
        """Return the shortest idle time in a user's ``sessions`` sessions; None unless each of them is reported."""
        now = self._clock()
        fresh = [
            (now - at, report) for who, at, report in self._latest.values() if who == uid and now - at < _GOOD_FOR_S
        ]
        if len(fresh) < sessions or any(report.idle_s is None for _, report in fresh):
            return None
        return min((_idle_s(report, age_s) for age_s, report in fresh), default=None)


def _idle_s(report: SessionReport, age_s: float) -> float:
    if report.inhibited and not report.locked:
        return 0.0
    return (report.idle_s or 0.0) + age_s
