"""The blockers: what keeps all tasks off at the owner's word, a pause or a program that runs."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

FOR_GOOD = math.inf
_MORNING = 8  # o'clock: when tomorrow begins
_UNITS = {"m": 60, "h": 3600, "d": 86400}
LOOK_AT_PROGRAMS_EVERY_S = 0.7
"""Programs are seen within a second: only new processes are asked for their names."""
_YOUNG_LOOKS = 3
"""A new process is asked so often: it has the name of its parent until it becomes its program."""


def end_of(words: str, now: float) -> float:
    """Return the end of a pause: ``1h``, ``until-tomorrow`` or ``for-good``. Raises ValueError for other words."""
    text = words.strip().lower().replace(" ", "-")
    if text == "for-good":
        return FOR_GOOD
    if text == "until-tomorrow":
        today = time.localtime(now)
        return time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, _MORNING, 0, 0, 0, 0, -1))
    if (found := re.fullmatch(r"(\d{1,4})([mhd])", text)) and int(found[1]):
        return now + int(found[1]) * _UNITS[found[2]]
    raise ValueError(f"expected a time such as 30m, 1h or 2d, until-tomorrow or for-good, got {words!r:.50}")


class Pause:
    """Pause of this worker. ``until`` is seconds since 1970, FOR_GOOD, or 0 if there is none.

    A pause counts at once, even if it cannot be written to disk; ``trouble`` then says why it would not outlive
    the agent.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.trouble = ""
        self.until = self._read()

    def set(self, until: float) -> None:
        """Pause until then."""
        self.until = until
        self._keep(lambda: self._write(until))

    def clear(self) -> None:
        """End the pause."""
        self.until = 0.0
        self._keep(lambda: self._file.unlink(missing_ok=True))

    def words(self, now: float) -> str:
        """Return ``until 14:30 CET`` (others read it elsewhere) or ``for good``; empty if nothing is paused."""
        if self.until <= now:
            return ""
        return self._end(now) + (f", but only until the worker restarts: {self.trouble}" if self.trouble else "")

    def _end(self, now: float) -> str:
        if self.until == FOR_GOOD:
            return "for good"
        end = time.localtime(self.until)
        return time.strftime("until %H:%M %Z" if self.until - now < 86400 / 2 else "until %a %d %b %H:%M %Z", end)

    def _keep(self, change: Callable[[], None]) -> None:
        self.trouble = ""
        try:
            change()
        except OSError as error:
            self.trouble = f"cannot be kept on disk ({error.strerror})"
            log.warning("what the owner said about a pause %s: it holds until the worker restarts", self.trouble)

    def _write(self, until: float) -> None:
        unfinished = self._file.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"until": None if until == FOR_GOOD else until}), "utf-8")
        unfinished.replace(self._file)

    def _read(self) -> float:
        """Return the saved end; FOR_GOOD if the file is unreadable, because the owner may have meant a pause."""
        try:
            until = json.loads(self._file.read_text("utf-8"))["until"]
            return FOR_GOOD if until is None else float(until)
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("cannot read %s (%s): paused until the owner resumes", self._file, error)
            return FOR_GOOD


def _name_of(pid: int) -> str:
    try:
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        return psutil.Process(pid).name()
    except (OSError, psutil.Error):
        return ""


class BlockingPrograms:
    """Looks for programs by name, without regard to case and to a final ``.exe``."""

    def __init__(
        self,
        names: Iterable[str],
        processes: Callable[[], Iterable[int]] = psutil.pids,
        name_of: Callable[[int], str] = _name_of,
    ) -> None:
        self._names = {_plain(name): name for name in names}
        self._processes, self._name_of = processes, name_of
        self._asked: dict[int, int] = {}  # how often each process was
        self._ours: dict[int, str] = {}  # processes of such programs

    def found(self) -> str:
        """Look, and return one of them that runs; empty if none does."""
        if not self._names:
            return ""
        there = set(self._processes())
        self._asked = {pid: times for pid, times in self._asked.items() if pid in there}
        self._ours = {pid: name for pid, name in self._ours.items() if pid in there}
        for pid in there:
            times = self._asked.get(pid, 0)
            if times < _YOUNG_LOOKS or pid in self._ours:
                self._asked[pid] = times + 1
                self._note(pid, self._names.get(_plain(self._name_of(pid)), ""))
        return min(self._ours.values(), default="")

    def _note(self, pid: int, name: str) -> None:
        if name:
            self._ours[pid] = name
        else:
            self._ours.pop(pid, None)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".exe")[:15]  # Linux keeps no more of a name
