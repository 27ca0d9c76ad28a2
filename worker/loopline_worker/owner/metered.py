"""The watch of NetworkManager, which tells if the network connection is metered (a phone's, for instance).

Where no NetworkManager answers, the connection counts as unmetered. NetworkManager's guesses count as its word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NoReturn

from loopline_worker.presence.bus import Bus, BusError

_SERVICE = _INTERFACE = "org.freedesktop.NetworkManager"
_PATH = "/org/freedesktop/NetworkManager"
_YES, _GUESSED_YES = 1, 3
_EVERY_S = 60.0
_AGAIN_S = 30.0


async def watch(on_change: Callable[[bool], None]) -> None:
    """Call ``on_change`` with the present answer now and whenever it may have changed, until cancelled."""
    if not find_spec("jeepney"):  # it is not everywhere
        return
    while True:
        with suppress(Exception):  # a library may raise anything about a broken peer
            async with Bus.open(of_system=True) as bus:
                await _keep_up(bus, on_change)
        on_change(False)
        await asyncio.sleep(_AGAIN_S)


async def _keep_up(bus: Bus, on_change: Callable[[bool], None]) -> NoReturn:
    changed = asyncio.Event()

    def told(signal: str, body: tuple[Any, ...]) -> None:
        changed.set()

    await bus.subscribe(f"sender='{_SERVICE}',path='{_PATH}',member='PropertiesChanged'", told)
    while True:
        changed.clear()
        found = await bus.properties(_SERVICE, _PATH, _INTERFACE)
        if "Metered" not in found:
            raise BusError("NetworkManager does not say whether the connection is metered")
        on_change(found["Metered"] in (_YES, _GUESSED_YES))
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY_S):
                await changed.wait()
