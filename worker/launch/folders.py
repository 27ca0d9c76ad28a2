"""Scratch folders as a guard makes them: what a task left as it found it serves the next one, under its name.

Making and removing two folders takes ten times as long as renaming one.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

TEMPORARY = ".tmp"


class Folders:
    """Of one guard; at most one of them is spare."""

    def __init__(self) -> None:
        self._spare = ""
        self._shape: list[tuple[int, int, int]] = []  # of a folder and the one in it, when they were made

    @property
    def has_spare(self) -> bool:
        return bool(self._spare)

    def make(self, folder: str) -> None:
        """An empty one, with an empty one in it for temporary files. OSError where there is no room."""
        spare, self._spare = self._spare, ""
        if spare:
            with suppress(OSError):
                os.rename(spare, folder)  # noqa: PTH104 - pathlib is not light
                return
        os.makedirs(f"{folder}/{TEMPORARY}")  # noqa: PTH103
        self._shape = _shape(folder)

    def take_back(self, folder: str) -> bool:
        """Whether it is done with: False leaves it to others, for there is something in it."""
        with suppress(OSError):
            inner = f"{folder}/{TEMPORARY}"
            if os.listdir(folder) == [TEMPORARY] and not os.listdir(inner) and _shape(folder) == self._shape:  # noqa: PTH208
                self._spare = folder
        return self._spare == folder

    def clear(self) -> None:
        """Remove the spare one."""
        spare, self._spare = self._spare, ""
        if spare:
            with suppress(OSError):  # there is something in it after all: for the next agent's sweep
                os.rmdir(f"{spare}/{TEMPORARY}")  # noqa: PTH106
                os.rmdir(spare)  # noqa: PTH106


def _shape(folder: str) -> list[tuple[int, int, int]]:
    """What a task may have changed of folders that are empty. OSError where they are none."""
    found = [os.lstat(folder), os.lstat(f"{folder}/{TEMPORARY}")]
    if not all(stat.S_ISDIR(status.st_mode) for status in found):
        raise NotADirectoryError(folder)
    return [(status.st_mode, status.st_uid, status.st_gid) for status in found]
