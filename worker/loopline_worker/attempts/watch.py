"""Watch over a running attempt: finds limits that it exceeds and that the system does not enforce.

One timer, the runner's, serves all attempts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from loopline_worker.attempts.limits import Breach, Limits
from loopline_worker.launch.interface import Usage
from loopline_worker.timings import CHECK_LIMITS_EVERY_S

_DISK_SHARE = 50
"""Time between two looks at the disk, as a multiple of what a look takes."""
_DISK_GAP_S = 30.0
"""But no longer than this, however long a look takes."""
_ENTRY_BYTES = 4096
"""What a file or folder takes at least: an empty one has a name and an inode too, and of those a disk has so many."""


class Watch:
    """Checks the limits of an attempt by ``measure`` and ``output_bytes``; ``on_breach`` ends the attempt."""

    def __init__(
        self,
        limits: Limits,
        folder: Path,
        measure: Callable[[], Usage],
        output_bytes: Callable[[], int],
        on_breach: Callable[[Breach], None],
    ) -> None:
        self._limits = limits
        self._folder = folder
        self._measure = measure
        self._output_bytes = output_bytes
        self._on_breach = on_breach
        self._next_look = 0.0
        self._next_disk_look = 0.0
        self._looking: asyncio.Future[None] | None = None

    def look(self, now: float) -> None:
        """Check the limits if a check is due (``now`` by ``time.monotonic``); the disk is read in a thread."""
        if now < self._next_look:
            return
        self._next_look = now + CHECK_LIMITS_EVERY_S
        if breach := self._look():
            self._on_breach(breach)
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._tell_of_disk())

    def stop(self) -> None:
        """Stop reading the disk."""
        if self._looking:
            self._looking.cancel()

    async def _tell_of_disk(self) -> None:
        if breach := await self._look_at_disk():
            self._on_breach(breach)

    def _look(self) -> Breach | None:
        usage, limits = self._measure(), self._limits
        if usage.breach:
            return usage.breach
        if _is_over(usage.memory_bytes, limits.memory_bytes):
            return Breach.MEMORY
        if _is_over(usage.processes, limits.processes):
            return Breach.PROCESSES
        return Breach.OUTPUT if _is_over(self._output_bytes(), limits.output_bytes) else None

    async def _look_at_disk(self) -> Breach | None:
        began = time.monotonic()
        if self._limits.scratch_bytes is None or began < self._next_disk_look:
            return None
        is_full = await asyncio.to_thread(fills, self._folder, self._limits.scratch_bytes)
        ended = time.monotonic()
        self._next_disk_look = ended + min(_DISK_SHARE * (ended - began), _DISK_GAP_S)
        return Breach.SCRATCH if is_full else None


def fills(folder: Path, limit_bytes: int) -> bool:
    """True if a folder's content takes so much of the disk, or is nested too deeply to be measured.

    Folders that the agent may not read do not count.
    """
    try:
        return _fills(folder, limit_bytes)
    except RecursionError:
        return True


def _fills(folder: Path, limit_bytes: int) -> bool:
    left = limit_bytes
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            left -= _disk_bytes(os.path.join(place, name))  # noqa: PTH118 - there may be very many
            if left <= 0:
                return True
    return False


def _disk_bytes(file: str) -> int:
    try:
        status = os.lstat(file)
    except OSError:
        return 0
    return max(_ENTRY_BYTES, 512 * status.st_blocks if hasattr(status, "st_blocks") else status.st_size)


def _is_over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
