"""Text consoles, ssh and terminal windows: the time of the last key there, as ``w`` shows it.

A terminal's access time changes when a program reads what was typed. During typing it moves in steps of eight
seconds at most, because Linux hides the timing of keys; the first key after a pause shows at once. Terminals say
nothing about a graphical desktop. This probe vouches for the whole computer only if there certainly is no desktop: no
display server has a socket here, and this is not a container, which sees its own sockets only.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from loopline_worker.host.boot_clock import boot_s
from loopline_worker.host.computer import is_contained
from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.supervisor import processes

_CONSOLE = re.compile(r"ttys\d+|console" if sys.platform == "darwin" else r"tty[1-9]\d*|ttyS\d+")
_DISPLAY_SOCKET = re.compile(r"/\.X11-unix/X\d+|/wayland-\d+$")
_SURVEY_EVERY_S = 5.0
_JUST_NOW_S = 1.0
_Terminal = tuple[int, int]  # device and when it was made: numbers are reused


class Terminals(Probe):
    """Reads the access times of all terminals, except those opened by tasks."""

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
        self._of_tasks: set[_Terminal] = set()
        self._latest = 0.0
        self._latest_boot_s = boot_s()  # the same moment by the boot clock: the computer's clock may be set
        self._surveyed = float("-inf")

    def look(self) -> Reading:
        """Return the seconds since the last key."""
        if time.monotonic() - self._surveyed > _SURVEY_EVERY_S:
            self._survey()
        latest, where = self._find_latest()
        if (
            latest != self._latest or boot_s() - self._latest_boot_s < _JUST_NOW_S
        ):  # a task may have opened it since then
            self._of_tasks = self._find_of_tasks()
            latest, where = self._find_latest()
        if latest != self._latest:
            self._latest, self._latest_boot_s = latest, boot_s() - max(0.0, time.time() - latest)
        return Reading(self.name, max(0.0, boot_s() - self._latest_boot_s), self._headless, where)

    def _find_latest(self) -> tuple[float, str]:
        latest = max(self._times(), default=None)
        return latest or (psutil.boot_time(), "no terminal since the computer started")

    def _survey(self) -> None:
        """Find what hardly changes: the consoles, and if there certainly is no graphical desktop."""
        self._surveyed = time.monotonic()
        self._consoles = [name for name in _entries(self._devices) if _CONSOLE.fullmatch(name)]
        self._headless = not self._contained and not has_display(self._sockets)

    def _times(self) -> Iterator[tuple[float, str]]:
        windows = (f"pts/{name}" for name in _entries(self._devices / "pts") if name.isdigit())
        for path in (*self._consoles, *windows):
            status = _status(f"{self._devices}/{path}")
            if status and _terminal(status) not in self._of_tasks:
                yield status.st_atime, f"/dev/{path}"

    def _find_of_tasks(self) -> set[_Terminal]:
        """Return the pseudo-terminals that tasks have opened for themselves (``script``, pexpect).

        The session that a terminal controls decides: no task can claim the owner's terminal.
        """
        try:
            below = [process for pid in processes.descendants(os.getpid()) if (process := processes.status(pid))]
        except OSError:  # no file descriptor left
            return self._of_tasks
        devices = {process.terminal for process in below if process.session != _OWN_SESSION} - {0}
        names = _entries(self._devices / "pts") if devices else []
        known = [status for name in names if (status := _status(f"{self._devices}/pts/{name}"))]
        return {_terminal(status) for status in known if status.st_rdev in devices}


def has_display(sockets: Path = Path("/proc/net/unix")) -> bool:
    """True if an X server or a Wayland compositor listens on this computer, or if that is unknown."""
    try:
        lines = sockets.read_text(errors="replace").splitlines()
    except OSError:
        return True
    return any(_DISPLAY_SOCKET.search(line) for line in lines)


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _status(file: str) -> os.stat_result | None:
    """Return the file's status; None if it has just gone."""
    try:
        return os.stat(file)
    except OSError:
        return None


def _terminal(status: os.stat_result) -> _Terminal:
    return status.st_rdev, status.st_ctime_ns


_OWN_SESSION = os.getsid(0) if hasattr(os, "getsid") else 0
"""The agent's session: a worker that was started from a terminal shares it with its owner."""
