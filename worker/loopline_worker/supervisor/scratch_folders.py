"""Scratch folders made by a supervisor: a folder that a task left as it found it is renamed for the next task.

Making and removing two folders takes ten times as long as renaming one. The first time the supervisor looks into the
folder for changes; from the second task on, inotify answers.
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor.walls.inotify import FolderWatcher

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Callable

TEMPORARY = ".tmp"


class ScratchFolders:
    """The scratch folders of one supervisor; at most one of them is spare."""

    def __init__(self, lend: Callable[[str], None] = lambda folder: None) -> None:
        """``lend`` gives a new folder to the user that tasks run as."""
        self._lend = lend
        self._spare = ""
        self._fingerprints: list[tuple[int, ...]] = []  # of a folder and the one in it, when they were made
        self._watcher = FolderWatcher()
        self._is_watched = False

    @property
    def has_spare(self) -> bool:
        """True if a folder waits for the next task."""
        return bool(self._spare)

    def make(self, folder: str) -> None:
        """Make an empty folder that holds an empty one for temporary files. Raises OSError if there is no room."""
        spare, self._spare = self._spare, ""
        inner = f"{folder}/{TEMPORARY}"
        if spare:
            try:
                os.rename(spare, folder)  # noqa: PTH104 - pathlib is not light
                self._is_watched = self._is_watched or self._watcher.watch(folder, inner)
                return
            except OSError:
                self._is_watched = False
        os.makedirs(inner)  # noqa: PTH103
        self._lend(folder)
        self._fingerprints, self._is_watched = [_fingerprint(folder), _fingerprint(inner)], False

    def recycle(self, folder: str) -> bool:
        """Keep an unchanged folder for the next task. False leaves it to others, because something is in it."""
        try:
            self._is_watched = self._is_watched and self._watcher.saw_nothing()
            is_itself = _fingerprint(folder) == self._fingerprints[0]  # it may have been replaced by another
            if is_itself and (self._is_watched or self._is_unchanged(folder)):
                self._spare = folder
        except OSError:
            return False
        return self._spare == folder

    def clear(self) -> None:
        """Remove the spare folder."""
        spare, self._spare = self._spare, ""
        if spare:
            with suppress(OSError):  # there is something in it after all: the next agent removes it
                os.rmdir(f"{spare}/{TEMPORARY}")  # noqa: PTH106
                os.rmdir(spare)  # noqa: PTH106

    def _is_unchanged(self, folder: str) -> bool:
        inner = f"{folder}/{TEMPORARY}"
        is_inner_same = os.listdir(folder) == [TEMPORARY] and _fingerprint(inner) == self._fingerprints[1]  # noqa: PTH208
        return is_inner_same and not os.listdir(inner)  # noqa: PTH208


def _fingerprint(folder: str) -> tuple[int, ...]:
    """Return what a task may have changed of an empty folder."""
    status = os.lstat(folder)
    return status.st_mode, status.st_uid, status.st_gid, status.st_dev, status.st_ino
