"""The desktop of a session, by its bus: whether it is locked, or plays a film without input."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.waiting.routine import Routine, pause

_AGAIN_S = 10.0
_ASK_EVERY_S = 5.0
_IDLE = 8
"""GNOME's flag for what keeps the screen on."""


class Desktop:
    """Signs of the desktop: it is locked, or a program keeps its screen on (a film, a call, a presentation)."""

    def __init__(self) -> None:
        self.is_locked = False
        self.is_inhibited = False

    def watch(self) -> Routine[NoReturn]:
        """Ask the session's bus every few seconds. What does not answer is not so."""
        while True:
            with suppress(Exception), (yield from Bus.open(of_system=False)) as bus:  # a library may raise anything
                while True:
                    yield from self._ask(bus)
                    yield from pause(_ASK_EVERY_S)
            self.is_locked = self.is_inhibited = False
            yield from pause(_AGAIN_S)

    def _ask(self, bus: Bus) -> Routine[None]:
        gnome, kde = "org.gnome.ScreenSaver", "org.freedesktop.ScreenSaver"
        self.is_locked = (yield from _says(bus, gnome, "/org/gnome/ScreenSaver", gnome, "GetActive")) or (
            yield from _says(bus, kde, "/org/freedesktop/ScreenSaver", kde, "GetActive")
        )
        manager = "org.gnome.SessionManager"
        self.is_inhibited = yield from _says(
            bus, manager, "/org/gnome/SessionManager", manager, "IsInhibited", "u", _IDLE
        )


def _says(
    bus: Bus, service: str, path: str, interface: str, member: str, signature: str = "", *body: int
) -> Routine[bool]:
    try:
        return (yield from bus.ask(service, path, interface, member, signature, *body)) is True
    except (BusError, TimeoutError):
        return False
