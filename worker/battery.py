"""Whether this computer runs on its battery."""

from __future__ import annotations

import psutil


class Battery:
    """Asked again and again only where there is one."""

    def __init__(self) -> None:
        self._is_there = hasattr(psutil, "sensors_battery")

    def is_in_use(self) -> bool:
        state = psutil.sensors_battery() if self._is_there else None
        self._is_there = state is not None
        return state is not None and state.power_plugged is False
