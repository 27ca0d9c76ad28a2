"""The idle detector: all probes of this computer, and what follows from their readings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.presence.session_reports import SessionReports
from loopline_worker.presence.waiting.routine import Routine

_COARSE_S = 2.0
_MOVING_S = 0.025
"""Input so shortly before a reading is probably one of many: a mouse sends a hundred a second."""


class Idleness(NamedTuple):
    """Combined reading of the whole computer: when it was last used, and which probe reports that."""

    idle_s: float | None  # None: no probe can tell, so the computer counts as in use
    by: str
    is_fresh: bool = True  # read just now, not remembered

    @property
    def certain_idle_s(self) -> float:
        """Idle time; 0 if it is not known."""
        return self.idle_s or 0.0


def judge(readings: Sequence[Reading]) -> Idleness:
    """Combine readings: the least idle one counts, provided that a probe vouches for the desktop."""
    answers = [(reading.idle_s, reading) for reading in readings if reading.idle_s is not None]
    if not any(reading.sees_desktop for _, reading in answers):
        return Idleness(None, "no probe can tell whether somebody is using this computer's desktop")
    idle_s, least = min(answers, key=lambda answer: answer[0])
    return Idleness(idle_s, least.probe, least.is_fresh)


class IdleDetector:
    """Reads all probes: several times a second while tasks run."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = probes

    def listen(self, on_input: Callable[[], None]) -> list[Routine[None]]:
        """Return what is to run so that the probes that are notified of an input call ``on_input``."""
        return [probe.listen(on_input) for probe in self._probes]

    def use_reports(self, reports: SessionReports) -> None:
        """Use the reporters' readings in the probe of sessions."""
        for probe in self._probes:
            if hasattr(probe, "reports"):
                probe.reports = reports

    def knows(self, uid: int) -> bool:
        """True if this user is logged in here."""
        return any(uid in getattr(probe, "people", ()) for probe in self._probes)

    @property
    def is_at_greeter(self) -> bool:
        """True if a login screen is shown."""
        return any(getattr(probe, "is_at_greeter", False) for probe in self._probes)

    def look(self) -> Idleness:
        """Return the combined reading."""
        return judge(self.readings())

    def readings(self) -> list[Reading]:
        """Return the reading of each probe."""
        return [probe.look() for probe in self._probes]

    def close(self) -> None:
        """Close all probes."""
        for probe in self._probes:
            probe.close()


class InputClock:
    """Moment of an input, as exactly as it can be known: between two readings."""

    def __init__(self) -> None:
        self._last_read: float | None = None

    def looked(self, idle_s: float, now: float, *, is_fresh: bool = True, is_notified: bool = False) -> float:
        """Return the moment of the first input since the last reading, on the clock of ``now``.

        Some probes report whole seconds, so that their reading alone would make the agent seem slower than it is. A
        remembered reading was not taken at our last one: an older input may be news. Probes report the last input. If
        the mouse is moving, the first one was earlier, half of the time since the last reading on average.
        ``is_notified``: the system reported this input when it took place.
        """
        moment, last_read = now - idle_s, self._last_read
        if is_fresh and last_read is not None:
            if moment < last_read and idle_s < _COARSE_S:
                moment = last_read
            elif moment > last_read and idle_s < _MOVING_S and not is_notified:
                moment = (last_read + moment) / 2
        self._last_read = now
        return moment


def open_idle_detector() -> IdleDetector:
    """Return the idle detector of this computer."""
    return IdleDetector(probes())


def probes() -> list[Probe]:
    """Return the probes for this system."""
    if sys.platform == "win32":
        from loopline_worker.presence.windows_input import Windows

        return [Windows()]
    from loopline_worker.presence.terminals import Terminals

    if sys.platform == "darwin":
        from loopline_worker.presence.macos import MacOS

        return [MacOS(), Terminals()]
    from loopline_worker.presence.gamepads import Gamepads
    from loopline_worker.presence.logind import Logind
    from loopline_worker.presence.mutter import Mutter
    from loopline_worker.presence.wayland import Wayland
    from loopline_worker.presence.x11 import X11

    return [Mutter(), Wayland(), X11(), Logind(), Terminals(), Gamepads()]
