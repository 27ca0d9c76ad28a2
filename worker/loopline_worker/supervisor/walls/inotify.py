"""Changes in folders, by inotify(7): it answers at once, where looking through the folders takes ten times as long.

Where inotify is missing, changes are never known: elsewhere than on Linux, or if the user has no instance left.
"""

from __future__ import annotations

import os

from loopline_worker.supervisor.subreaper import libc

_ATTRIBUTES, _MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x4, 0x40, 0x80, 0x100, 0x200
_CHANGES = _ATTRIBUTES | _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED
_FOLDERS_ONLY, _NO_LINK, _ONCE = 0x1000000, 0x2000000, 0x80000000
_PART_BYTES = 4096


class FolderWatcher:
    """Watches folders even if they are renamed, and reports the first change in each."""

    def __init__(self) -> None:
        self._file = -1

    def watch(self, *folders: str) -> bool:
        """Start watching these folders. False if that is impossible."""
        if libc and self._file < 0:
            self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return self._file >= 0 and all(self._watches(folder) for folder in folders)

    def saw_nothing(self) -> bool:
        """True if no watched folder has changed since the last call."""
        try:
            return not os.read(self._file, _PART_BYTES)
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Watch nothing any more."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _watches(self, folder: str) -> bool:
        assert libc
        kinds = _CHANGES | _FOLDERS_ONLY | _NO_LINK | _ONCE
        return bool(libc.inotify_add_watch(self._file, os.fsencode(folder), kinds) >= 0)
