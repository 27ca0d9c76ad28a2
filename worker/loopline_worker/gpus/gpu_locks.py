"""Locks of GPUs: agents of one computer, perhaps of several grids and users, never give one GPU to two tasks.

A lock is a file in memory that all users of the computer see. It is named by the GPU's PCI address, which every agent
knows: the UUID of a GPU is unknown until it is first used. The kernel releases the lock of an agent that dies.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 - unlike /tmp it is the same for services with a /tmp of their own


class GpuLocks:
    """Locks by PCI address, held by this agent."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}  # open files

    def acquire(self, address: str) -> bool:
        """Lock a GPU. False if it is locked, also by another attempt of this agent. Raises OSError."""
        if address in self._held:
            return False
        file = self._open(address)
        if _lock(file, exclusive=True):
            self._held[address] = file
            return True
        os.close(file)
        return False

    def release(self, address: str) -> None:
        """Unlock a GPU, if this agent has locked it."""
        if address in self._held:
            os.close(self._held.pop(address))

    def is_taken(self, address: str) -> bool:
        """True if another agent has locked the GPU."""
        if address in self._held:
            return False
        try:
            file = self._open(address)
        except OSError:
            return True
        try:
            return not _lock(file, exclusive=False)  # two agents that only ask do not disturb each other
        finally:
            os.close(file)

    def close(self) -> None:
        """Unlock all."""
        for address in [*self._held]:
            self.release(address)

    def _open(self, address: str) -> int:
        """Open the file of a lock, which may be another user's: reading it is enough. Raises OSError."""
        path = self._folder / f"loopline-gpu-{address}.lock"
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
