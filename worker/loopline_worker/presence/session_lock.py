"""The lock of a desktop's session that prevents suspend while tasks run. Only the session's user can take it."""

from __future__ import annotations

from contextlib import suppress

from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.waiting.routine import Routine

_WHY = "a task runs, and nobody uses this computer"
_SUSPEND = 4
"""GNOME's flag for preventing suspend alone: the screen may be switched off."""


class SessionLock:
    """Desktops release the lock when its connection to the bus ends."""

    def __init__(self) -> None:
        self._bus: Bus | None = None
        self._is_refused = False

    def set(self, is_wanted: bool) -> Routine[None]:
        """Take or release the lock. If no desktop grants it, that is tried again after the next release."""
        if not is_wanted:
            self.release()
        elif self._bus is None and not self._is_refused:
            self._is_refused = True
            with suppress(Exception):  # a library may raise anything
                self._bus = yield from _lock()

    def release(self) -> None:
        """Release the lock."""
        self._is_refused = False
        if self._bus:
            self._bus.close()
            self._bus = None


def _lock() -> Routine[Bus]:
    bus = yield from Bus.open(of_system=False)
    try:
        try:
            manager, path = "org.gnome.SessionManager", "/org/gnome/SessionManager"
            yield from bus.ask(manager, path, manager, "Inhibit", "susu", "loopline", 0, _WHY, _SUSPEND)
        except BusError:
            service, path = "org.freedesktop.PowerManagement", "/org/freedesktop/PowerManagement/Inhibit"
            yield from bus.ask(service, path, f"{service}.Inhibit", "Inhibit", "ss", "Loopline", _WHY)
    except BaseException:
        bus.close()
        raise
    return bus
