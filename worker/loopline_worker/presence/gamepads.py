"""Gamepads and joysticks (Linux): desktops do not count them as input, although a player is present.

systemd lets the user of the active session read them (``uaccess``). Everybody who reads one has all of its events,
records of eight bytes (the kernel's joystick API, ``struct js_event``): time, value, kind, number.
"""

from __future__ import annotations

import math
import os
import re
import select
import struct
import time
from collections.abc import Callable

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.presence.waiting.routine import Routine, Wait

_NAME = re.compile(r"js\d+")
_EVENT = struct.Struct("=IhBB")
_BUTTON, _AXIS, _INITIAL = 0x01, 0x02, 0x80
_MOVED = 8192
"""Of 32767: a stick that rests may tremble by less."""
_MOST_BYTES = _EVENT.size * 64
_SURVEY_EVERY_S = 5.0


class Gamepads(Probe):
    """Reads all gamepads that this user may read. Before the first event nothing is known."""

    name = "gamepads"

    def __init__(self, folder: str | os.PathLike[str] = "/dev/input") -> None:
        self._folder = folder
        self._files: dict[str, int] = {}  # by name
        self._axes: dict[tuple[str, int], int] = {}  # where each stood when it last counted as moved
        self._surveyed = float("-inf")
        self._last: float | None = None
        self._watched: select.epoll | None = None  # while anybody listens: one file for all of them

    def look(self) -> Reading:
        """Return the seconds since one was last used."""
        if time.monotonic() - self._surveyed > _SURVEY_EVERY_S:
            self._survey()
        self._read_all()
        idle_s = None if self._last is None else max(0.0, time.monotonic() - self._last)
        return Reading(self.name, idle_s, detail=", ".join(sorted(self._files)) or "there is none")

    def listen(self, on_input: Callable[[], None]) -> Routine[None]:
        """Call ``on_input`` at each button that is pressed, and each stick that is moved."""
        with select.epoll() as watched:
            self._watched = watched
            try:
                for name in self._files:
                    self._watch(name)
                while (yield Wait(watched.fileno(), math.inf)):
                    before = self._last
                    self._read_all()
                    if self._last != before:
                        on_input()
            finally:
                self._watched = None

    def close(self) -> None:
        """Close all."""
        for name in list(self._files):
            self._drop(name)

    def _survey(self) -> None:
        self._surveyed = time.monotonic()
        try:
            names = filter(_NAME.fullmatch, os.listdir(self._folder))
            for name in set(names) - self._files.keys():
                self._files[name] = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._watch(name)
        except OSError:  # it is another user's, or gone
            return

    def _watch(self, name: str) -> None:
        if self._watched:
            self._watched.register(self._files[name], select.EPOLLIN)

    def _read_all(self) -> None:
        for name in list(self._files):
            self._read(name)

    def _read(self, name: str) -> None:
        try:
            part = os.read(self._files[name], _MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:  # it was unplugged
            self._drop(name)
        whole = len(part) - len(part) % _EVENT.size
        for _, value, kind, number in _EVENT.iter_unpack(part[:whole]):
            self._note((name, number), value, kind)

    def _note(self, axis: tuple[str, int], value: int, kind: int) -> None:
        """Take in one event; as one is opened, it tells how all buttons and sticks are."""
        if kind & _AXIS:
            is_use = abs(value - self._axes.setdefault(axis, value)) > _MOVED
            if is_use or kind & _INITIAL:
                self._axes[axis] = value
        else:
            is_use = kind == _BUTTON
        if is_use and not kind & _INITIAL:
            self._last = time.monotonic()

    def _drop(self, name: str) -> None:
        os.close(self._files.pop(name))  # which ends its watch
