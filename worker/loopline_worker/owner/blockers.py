"""Blockers of all tasks: a pause or a running program, by the owner's wish, and an administrator's file."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from loopline_worker.host.boot_clock import boot_id, boot_s

log = logging.getLogger(__name__)

FOR_GOOD = math.inf
_LONGEST_NOTE = 100
_MORNING = 8  # o'clock: when tomorrow begins
_UNITS = {"m": 60, "h": 3600, "d": 86400}
LOOK_AT_PROGRAMS_EVERY_S = 0.7
"""Programs are seen within a second: only new processes are asked for their names."""
_YOUNG_LOOKS = 3
"""Number of checks of a new process, which has its parent's name until it executes its program."""


@dataclass(frozen=True, slots=True)
class PauseEnd:
    """The end of a pause, in seconds since 1970. ``lasts_s``: its length, unless a time of day was given."""

    at: float
    lasts_s: float | None = None


def end_of(words: str, now: float) -> PauseEnd:
    """Return the end of a pause: ``1h``, ``until-tomorrow`` or ``for-good``. Raises ValueError for other words."""
    text = words.strip().lower().replace(" ", "-")
    if text == "for-good":
        return PauseEnd(FOR_GOOD)
    if text == "until-tomorrow":
        today = time.localtime(now)
        return PauseEnd(time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, _MORNING, 0, 0, 0, 0, -1)))
    if (found := re.fullmatch(r"(\d{1,4})([mhd])", text)) and int(found[1]):
        lasts_s = int(found[1]) * _UNITS[found[2]]
        return PauseEnd(now + lasts_s, float(lasts_s))
    raise ValueError(f"expected a time such as 30m, 1h or 2d, until-tomorrow or for-good, got {words!r:.50}")


class Pause:
    """Pause of this worker. One of a certain length is measured by the boot clock, also after the agent's restart.

    A pause counts at once, even if it cannot be written to disk; ``trouble`` then says why it would not outlive
    the agent.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.trouble = ""
        self._end = PauseEnd(0.0)
        self._ends_boot_s: float | None = None  # by the boot clock, if it has a length
        self._read()

    def set(self, end: PauseEnd) -> None:
        """Pause until then."""
        self._end, self._ends_boot_s = end, None if end.lasts_s is None else boot_s() + end.lasts_s
        self._keep(self._write)

    def clear(self) -> None:
        """End the pause."""
        self._end, self._ends_boot_s = PauseEnd(0.0), None
        self._keep(lambda: self._file.unlink(missing_ok=True))

    def left_s(self, now: float) -> float:
        """Return the seconds until its end, at ``now`` seconds since 1970; 0 if nothing is paused."""
        left_s = self._end.at - now if self._ends_boot_s is None else self._ends_boot_s - boot_s()
        return max(0.0, left_s)

    def words(self, now: float) -> str:
        """Return ``until 14:30 CET`` (others read it elsewhere) or ``for good``; empty if nothing is paused."""
        left_s = self.left_s(now)
        if not left_s:
            return ""
        trouble = f", but only until the worker restarts: {self.trouble}" if self.trouble else ""
        return _end_in_words(left_s, now) + trouble

    def _keep(self, change: Callable[[], None]) -> None:
        self.trouble = ""
        try:
            change()
        except OSError as error:
            self.trouble = f"cannot be kept on disk ({error.strerror})"
            log.warning("what the owner said about a pause %s: it holds until the worker restarts", self.trouble)

    def _write(self) -> None:
        unfinished = self._file.with_suffix(".tmp")
        kept = {
            "until": None if self._end.at == FOR_GOOD else self._end.at,
            "lasts_s": self._end.lasts_s,
            "boot": boot_id(),
            "ends_boot_s": self._ends_boot_s,
        }
        unfinished.write_text(json.dumps(kept), "utf-8")
        unfinished.replace(self._file)

    def _read(self) -> None:
        """Read the saved end; FOR_GOOD if the file is unreadable, because the owner may have meant a pause.

        In another start of the computer its clock is all there is, and a pause lasts no longer than it was meant to.
        """
        try:
            kept = json.loads(self._file.read_text("utf-8"))
            at = FOR_GOOD if kept["until"] is None else float(kept["until"])
            lasts_s = None if kept.get("lasts_s") is None else float(kept["lasts_s"])
            self._end = PauseEnd(at, lasts_s)
            if lasts_s is not None:
                is_same_start = bool(kept.get("boot")) and kept["boot"] == boot_id()
                left_s = float(kept["ends_boot_s"]) - boot_s() if is_same_start else at - time.time()
                self._ends_boot_s = boot_s() + min(lasts_s, left_s)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("cannot read %s (%s): paused until the owner resumes", self._file, error)
            self._end = PauseEnd(FOR_GOOD)


def _end_in_words(left_s: float, now: float) -> str:
    if left_s == FOR_GOOD:
        return "for good"
    return time.strftime(
        "until %H:%M %Z" if left_s < 86400 / 2 else "until %a %d %b %H:%M %Z", time.localtime(now + left_s)
    )


def switched_off(file: Path) -> str:
    """Return the path of an administrator's file, with its first line; empty if there is none."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            note = stream.readline(_LONGEST_NOTE).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:  # it is there, and this user may not read it
        note = ""
    return f"{file}: {note}" if note else str(file)


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
