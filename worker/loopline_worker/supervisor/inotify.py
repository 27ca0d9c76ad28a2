"""Whether anything was done in folders: inotify(7) tells at once, where looking through them takes ten times as long.

Where there is none it is never known: elsewhere than on Linux, or where the user has as many as there may be.
"""

from __future__ import annotations

import os

from loopline_worker.supervisor.subreaper import libc

_ATTRIBUTES, _MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x4, 0x40, 0x80, 0x100, 0x200
_CHANGES = _ATTRIBUTES | _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED
_FOLDERS_ONLY, _NO_LINK, _ONCE = 0x1000000, 0x2000000, 0x80000000
_PART_BYTES = 4096


class Sentry:
    """Over folders, whatever they are renamed to; what is done in one of them is told once."""

    def __init__(self) -> None:
        self._file = -1

    def watch(self, *folders: str) -> bool:
        """False where that cannot be."""
        if libc and self._file < 0:
            self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return self._file >= 0 and all(self._watches(folder) for folder in folders)

    def saw_nothing(self) -> bool:
        """Since it was last asked, in any of the folders that it ever watched."""
        try:
            return not os.read(self._file, _PART_BYTES)
        except BlockingIOError:
            return True

    def _watches(self, folder: str) -> bool:
        assert libc
        kinds = _CHANGES | _FOLDERS_ONLY | _NO_LINK | _ONCE
        return bool(libc.inotify_add_watch(self._file, os.fsencode(folder), kinds) >= 0)
