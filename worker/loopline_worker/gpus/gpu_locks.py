"""Locks of GPUs: agents of one computer, perhaps of several grids and users, never give one GPU to two tasks.

A lock is a file in memory that all users of the computer see. It is named by the GPU's place: its PCI address, and
the numbers of an instance. Every agent knows it; the UUID of a GPU is unknown until it is first used. The kernel
releases the lock of an agent that dies.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 - unlike /tmp it is the same for services with a /tmp of their own


class GpuLocks:
    """Locks by the places of GPUs, held by this agent."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}  # open files
        self._attempts = Counter[str]()  # that have each GPU

    def acquire(self, place: str, most: int = 1) -> bool:
        """Lock a GPU for an attempt. Raises OSError.

        False if another agent has it, or ``most`` attempts of this agent.
        """
        if self._attempts[place] >= most:
            return False
        if place in self._held:
            self._attempts[place] += 1
            return True
        file = self._open(place)
        if _lock(file, exclusive=True):
            self._held[place] = file
            self._attempts[place] = 1
            return True
        os.close(file)
        return False

    def release(self, place: str) -> None:
        """Unlock a GPU once all attempts have released it."""
        if place not in self._held:
            return
        self._attempts[place] -= 1
        if not self._attempts[place]:
            os.close(self._held.pop(place))

    def is_taken(self, place: str) -> bool:
        """True if another agent has locked the GPU."""
        if place in self._held:
            return False
        try:
            file = self._open(place)
        except OSError:
            return True
        try:
            return not _lock(file, exclusive=False)  # two agents that only ask do not disturb each other
        finally:
            os.close(file)

    def close(self) -> None:
        """Unlock all."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()
        self._attempts.clear()

    def _open(self, place: str) -> int:
        """Open the file of a lock, which may be another user's: reading it is enough. Raises OSError."""
        path = self._folder / f"loopline-gpu-{place.replace('/', '-')}.lock"
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(made, 0o644)  # a umask must not keep other users out
            return made
        return os.open(path, flags)


def _lock(file: int, *, exclusive: bool) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    with suppress(BlockingIOError):
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        return True
    return False
