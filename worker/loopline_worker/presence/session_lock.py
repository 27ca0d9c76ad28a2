"""The lock of a desktop's session that prevents suspend while tasks run. Only the session's user can take it."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.waiting.poll_loop import Bell
from loopline_worker.presence.waiting.routine import Routine

_WHY = "a task runs, and nobody uses this computer"
_SUSPEND = 4
"""GNOME's flag for preventing suspend alone: the screen may be switched off."""


class SessionLock:
    """Takes the lock while it is wanted. If no desktop grants it, that is tried again the next time."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._changed = Bell()

    def set(self, is_wanted: bool) -> None:
        """Say whether the lock is wanted."""
        if is_wanted is not self._is_wanted:
            self._is_wanted = is_wanted
            self._changed.ring()

    def hold(self) -> Routine[NoReturn]:
        """Take and release the lock as wanted."""
        while True:
            yield from self._until(is_wanted=True)
            bus: Bus | None = None
            with suppress(Exception):  # a library may raise anything
                bus = yield from lock_session()
            yield from self._until(is_wanted=False)
            if bus:
                bus.close()

    def _until(self, *, is_wanted: bool) -> Routine[None]:
        while self._is_wanted is not is_wanted:
            self._changed.silence()
            yield from self._changed.rings()


def lock_session() -> Routine[Bus]:
    """Take the lock, and return the connection to close: desktops release the lock when it ends.

    Raises BusError if no desktop grants it, OSError and others if there is none.
    """
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
