"""The watch of NetworkManager, which tells if the network connection is metered (a phone's, for instance).

Where no NetworkManager answers, the connection counts as unmetered. NetworkManager's guesses count as its word.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import NoReturn

from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.waiting.routine import Routine, pause

_SERVICE = _INTERFACE = "org.freedesktop.NetworkManager"
_PATH = "/org/freedesktop/NetworkManager"
_YES, _GUESSED_YES = 1, 3
_EVERY_S = 60.0
_AGAIN_S = 30.0


def watch(on_change: Callable[[bool], None]) -> Routine[None]:
    """Call ``on_change`` with the present answer now and whenever it may have changed, until closed."""
    if not find_spec("jeepney"):  # it is not everywhere
        return
    while True:
        with suppress(Exception), (yield from Bus.open(of_system=True)) as bus:  # a library may raise anything
            yield from _keep_up(bus, on_change)
        on_change(False)
        yield from pause(_AGAIN_S)


def _keep_up(bus: Bus, on_change: Callable[[bool], None]) -> Routine[NoReturn]:
    rule = f"sender='{_SERVICE}',path='{_PATH}',member='PropertiesChanged'"
    yield from bus.subscribe(rule, lambda signal, body: None)
    while True:
        found = yield from bus.properties(_SERVICE, _PATH, _INTERFACE)
        if "Metered" not in found:
            raise BusError("NetworkManager does not say whether the connection is metered")
        on_change(found["Metered"] in (_YES, _GUESSED_YES))
        yield from bus.signalled(time.monotonic() + _EVERY_S)
