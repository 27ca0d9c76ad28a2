"""GNOME, on Wayland or X: its compositor, Mutter, reports the last input, and notifies of the next one on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn

from loopline_worker.presence.bus import Bus, BusProbe
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.waiting.routine import Routine

_SERVICE = _INTERFACE = "org.gnome.Mutter.IdleMonitor"
_PATH = "/org/gnome/Mutter/IdleMonitor/Core"
_EVERY_S = 2.0
_ARM_AFTER_S = 1.0


class Mutter(BusProbe):
    """Asks every two seconds; in between, a one-shot watch reports the first input after a pause."""

    name = "gnome"
    is_of_system = False

    def keep_up(self, bus: Bus, on_input: Callable[[], None]) -> Routine[NoReturn]:
        """Read the idle time, again and again."""
        watch: int | None = None

        def fired(signal: str, body: tuple[Any, ...]) -> None:
            nonlocal watch
            if signal == "WatchFired" and body == (watch,):
                watch = None
                self._note(0.0)
                on_input()

        yield from bus.subscribe(f"interface='{_INTERFACE}',member='WatchFired'", fired)
        while True:
            idle_s = int((yield from bus.ask(_SERVICE, _PATH, _INTERFACE, "GetIdletime"))) / 1000
            self._note(idle_s)
            if watch is None and idle_s >= _ARM_AFTER_S:  # it would fire at every key
                watch = yield from bus.ask(_SERVICE, _PATH, _INTERFACE, "AddUserActiveWatch")
            next_at = time.monotonic() + _EVERY_S
            while (yield from bus.signalled(next_at)):
                pass  # which ``fired`` has been told

    def _note(self, idle_s: float) -> None:
        self.learn(Reading(self.name, idle_s, True, "Mutter's idle monitor"))
