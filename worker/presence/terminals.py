"""Text consoles, ssh and terminal windows: when somebody last typed there, as ``w`` shows it.

A terminal's access time moves when a program reads what was typed (in steps of eight seconds at most while somebody
types: Linux blurs it so that keystrokes cannot be timed; the first key after a pause shows at once). Terminals say
nothing about a graphical desktop. Only where there is certainly none, on a headless server, does this probe vouch
for the whole computer: no display server has a socket here, and this is not a container, whose view ends at its wall.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from worker.cgroup import is_contained
from worker.presence.probe import Probe, Reading

_CONSOLE = re.compile(r"ttys\d+|console" if sys.platform == "darwin" else r"tty[1-9]\d*|ttyS\d+")
_DISPLAY_SOCKET = re.compile(r"/\.X11-unix/X\d+|/wayland-\d+$")
_SURVEY_EVERY_S = 5.0


class Terminals(Probe):
    name = "terminals"

    def __init__(
        self,
        devices: Path = Path("/dev"),
        sockets: Path = Path("/proc/net/unix"),
        contained: bool | None = None,
    ) -> None:
        self._devices = devices
        self._sockets = sockets
        self._contained = is_contained() if contained is None else contained
        self._consoles: list[str] = []
        self._headless = False
        self._surveyed = float("-inf")

    def look(self) -> Reading:
        if time.monotonic() - self._surveyed > _SURVEY_EVERY_S:
            self._survey()
        latest, where = max(self._times(), default=(psutil.boot_time(), "no terminal since the computer started"))
        return Reading(self.name, max(0.0, time.time() - latest), self._headless, where)

    def _survey(self) -> None:
        """What hardly changes: which consoles there are, and whether there is certainly no graphical desktop."""
        self._surveyed = time.monotonic()
        self._consoles = [name for name in _entries(self._devices) if _CONSOLE.fullmatch(name)]
        self._headless = not self._contained and not has_display(self._sockets)

    def _times(self) -> Iterator[tuple[float, str]]:
        windows = (f"pts/{name}" for name in _entries(self._devices / "pts") if name.isdigit())
        for path in (*self._consoles, *windows):
            if at := _accessed(f"{self._devices}/{path}"):
                yield at, f"/dev/{path}"


def has_display(sockets: Path = Path("/proc/net/unix")) -> bool:
    """Whether an X server or a Wayland compositor listens on this computer; where that cannot be told, yes."""
    try:
        lines = sockets.read_text(errors="replace").splitlines()
    except OSError:
        return True
    return any(_DISPLAY_SOCKET.search(line) for line in lines)


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - ten times a second
    except OSError:
        return []


def _accessed(file: str) -> float:
    """0 where it has just gone."""
    try:
        return os.stat(file).st_atime  # noqa: PTH116
    except OSError:
        return 0.0
