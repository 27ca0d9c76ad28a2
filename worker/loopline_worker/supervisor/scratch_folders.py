"""Scratch folders as a guard makes them: what a task left as it found it serves the next one, under its name.

Making and removing two folders takes ten times as long as renaming one. Whether it is as it was is looked
at the first time; from the second task on a sentry says so.
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor.inotify import Sentry

TEMPORARY = ".tmp"


class Folders:
    """Of one guard; at most one of them is spare."""

    def __init__(self) -> None:
        self._spare = ""
        self._looks: list[tuple[int, ...]] = []  # of a folder and the one in it, when they were made
        self._sentry = Sentry()
        self._is_watched = False

    @property
    def has_spare(self) -> bool:
        return bool(self._spare)

    def make(self, folder: str) -> None:
        """An empty one, with an empty one in it for temporary files. OSError where there is no room."""
        spare, self._spare = self._spare, ""
        inner = f"{folder}/{TEMPORARY}"
        if spare:
            with suppress(OSError):
                os.rename(spare, folder)  # noqa: PTH104 - pathlib is not light
                self._is_watched = self._is_watched or self._sentry.watch(folder, inner)
                return
        os.makedirs(inner)  # noqa: PTH103
        self._looks, self._is_watched = [_look(folder), _look(inner)], False

    def take_back(self, folder: str) -> bool:
        """Whether it is done with: False leaves it to others, for there is something in it."""
        with suppress(OSError):
            self._is_watched = self._is_watched and self._sentry.saw_nothing()
            is_itself = _look(folder) == self._looks[0]  # it may have been moved, and another put in its place
            if is_itself and (self._is_watched or self._is_as_it_was(folder)):
                self._spare = folder
        return self._spare == folder

    def clear(self) -> None:
        """Remove the spare one."""
        spare, self._spare = self._spare, ""
        if spare:
            with suppress(OSError):  # there is something in it after all: for the next agent's sweep
                os.rmdir(f"{spare}/{TEMPORARY}")  # noqa: PTH106
                os.rmdir(spare)  # noqa: PTH106

    def _is_as_it_was(self, folder: str) -> bool:
        inner = f"{folder}/{TEMPORARY}"
        return os.listdir(folder) == [TEMPORARY] and _look(inner) == self._looks[1] and not os.listdir(inner)  # noqa: PTH208


def _look(folder: str) -> tuple[int, ...]:
    """What a task may have changed of a folder that is empty."""
    status = os.lstat(folder)
    return status.st_mode, status.st_uid, status.st_gid, status.st_dev, status.st_ino
