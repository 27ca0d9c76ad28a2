"""The battery of this computer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

_SUPPLIES = Path("/sys/class/power_supply")


class Battery:
    """Reads the state at each call; batteries of devices such as mice do not count."""

    def __init__(self, supplies: Path = _SUPPLIES) -> None:
        self._supplies = supplies

    def is_in_use(self) -> bool:
        """True if this computer runs on its battery; False if that is not known."""
        if sys.platform == "linux":
            return _is_discharging(list(_read(self._supplies)))
        try:
            state = psutil.sensors_battery()
        except (AttributeError, OSError, RuntimeError, psutil.Error):  # not every system reports it
            return False
        return state is not None and state.power_plugged is False


def _is_discharging(supplies: list[dict[str, str]]) -> bool:
    """Judge by the mains if they are listed; otherwise by what the batteries do."""
    mains = [supply["online"] == "1" for supply in supplies if supply["type"] == "Mains"]
    doing = {supply["status"] for supply in supplies if supply["type"] == "Battery" and supply["scope"] != "Device"}
    if any(mains) or not doing:
        return False
    if "Discharging" in doing:
        return True
    return bool(mains) and not doing & {"Charging", "Full"}  # by USB, for instance


def _read(supplies: Path) -> Iterator[dict[str, str]]:
    try:
        folders = list(supplies.iterdir())
    except OSError:
        return
    for folder in folders:
        yield {name: _word(folder / name) for name in ("type", "scope", "online", "status")}


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
