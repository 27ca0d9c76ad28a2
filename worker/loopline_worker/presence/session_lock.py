"""The lock of a desktop that prevents suspend while tasks run. Only the session's user can take it.

GNOME and Cinnamon are not asked. They turn a lock against suspend into logind's lock *sleep:shutdown*, which prevents
a shutdown by others, such as by a UPS. Their lock against idleness would keep the screen on and unlocked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.bus import Bus
from loopline_worker.presence.waiting.poll_loop import Bell
from loopline_worker.presence.waiting.routine import Routine

WHY = "a task runs, and nobody uses this computer"
_SERVICE, _PATH = "org.freedesktop.PowerManagement", "/org/freedesktop/PowerManagement/Inhibit"


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
        yield from bus.ask(_SERVICE, _PATH, f"{_SERVICE}.Inhibit", "Inhibit", "ss", "Loopline", WHY)
    except BaseException:
        bus.close()
        raise
    return bus
