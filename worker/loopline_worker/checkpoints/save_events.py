"""Events of a task's checkpoint folder and of its output pipes, in one queue and so in their order, by inotify(7).

The queue shows whether the task has written output since it last renamed a file into place. If not, its output is
that of its state. Counting bytes of the output would not show it, because they arrive by another way than the events.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loopline_worker.supervisor.subreaper import libc

UNFINISHED = ".new"
"""Files and folders with such names are not saved: the program is still writing them."""
_WRITTEN, _CLOSED, _MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_LOST = 0x4000
_REMOVED = _MOVED_FROM | _DELETED
"""Alone these are not a change: a program may clean up before it saves for the first time."""
_CHANGES = _CLOSED | _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED
_FOLDERS_ONLY, _NO_LINK = 0x1000000, 0x2000000
_EVENT = struct.Struct("iIII")
_STEP = re.compile(r"step-([0-9]{1,9})")
_PART_BYTES = 65536


def step_of(name: str) -> int | None:
    """Return N if a name is ``step-N``; None if it is another."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


def _unread_bytes(pipe: int) -> int:
    import fcntl  # with termios, not on Windows
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


class SaveEvents:
    """Events of one task."""

    def __init__(self, on_news: Callable[[], None], count_output: Callable[[], int]) -> None:
        """``on_news`` is called after a change. ``count_output`` returns how many bytes the task has written."""
        self.is_changed = False  # since ``settle``
        self.has_renamed = False  # the program renames: its state is valid after each rename, and not in between
        self.step: int | None = None  # N of the last name ``step-N`` that something was renamed to
        self._on_news = on_news
        self._count_output = count_output
        self._file = -1
        self._folder = -1  # number of its watch
        self._sees_output = False
        self._is_output_older = True  # than the last rename
        self._counted = 0  # bytes at the last rename, where only they are known

    @property
    def is_open(self) -> bool:
        """True while changes are seen."""
        return self._folder >= 0

    @property
    def output_matches(self) -> bool:
        """True if the output is that of the state. Call it while the task is still, after ``read``."""
        if not self.has_renamed:
            return True
        return self._is_output_older if self._sees_output else self._counted == self._count_output()

    def open(self, folder: Path) -> None:
        """Watch a folder. Changes are not seen where that is impossible."""
        if libc:
            self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file >= 0:
            assert libc
            kinds = _CHANGES | _FOLDERS_ONLY | _NO_LINK
            self._folder = libc.inotify_add_watch(self._file, os.fsencode(folder), kinds)
            asyncio.get_running_loop().add_reader(self._file, self._on_readable)

    def open_streams(self, ends: Sequence[int]) -> None:
        """Watch the pipes of the task's output, by the ends that this process has of them."""
        if self._file >= 0:
            assert libc
            paths = [f"/proc/self/fd/{end}".encode() for end in ends]
            self._sees_output = all(libc.inotify_add_watch(self._file, path, _WRITTEN) >= 0 for path in paths)
            self.read()
            is_silent = not self._count_output() and not any(map(_unread_bytes, ends))
            self._is_output_older = self.has_renamed and is_silent  # earlier output was not seen

    def settle(self) -> None:
        """Note that everything until now is in a checkpoint."""
        self.is_changed = False

    def read(self) -> None:
        """Take in the events until now."""
        with suppress(OSError):  # there are no more
            while self._file >= 0 and (events := os.read(self._file, _PART_BYTES)):
                place = 0
                while place < len(events):
                    watch, kinds, _, length = _EVENT.unpack_from(events, place)
                    place += _EVENT.size + length
                    self._note(watch, kinds, events[place - length : place].rstrip(b"\0"))

    def close(self) -> None:
        """Watch nothing any more."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
        self._file = self._folder = -1

    def _on_readable(self) -> None:
        before = self.is_changed
        self.is_changed = False
        self.read()
        has_news, self.is_changed = self.is_changed, self.is_changed or before
        if has_news:
            self._on_news()

    def _note(self, watch: int, kinds: int, name: bytes) -> None:
        if kinds & _LOST:
            self.is_changed, self._is_output_older = True, False
        elif watch != self._folder:
            self._is_output_older = False
        elif not name.endswith(UNFINISHED.encode()):
            if kinds & _MOVED_TO:
                self.has_renamed = self._is_output_older = True
                if (step := step_of(name.decode(errors="replace"))) is not None:
                    self.step = step
                if not self._sees_output:
                    self._counted = self._count_output()
            self.is_changed |= self.has_renamed or not kinds & _REMOVED
