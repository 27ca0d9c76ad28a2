"""The limits of a task on this computer, and the checks that a running attempt keeps them.

The operating system enforces some of them. A stopwatch enforces the time limit, and one timer of the runner checks
the others for all attempts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_worker.launch import open_files
from loopline_worker.launch.interface import Limits, Usage
from loopline_worker.supervisor import requests
from loopline_worker.supervisor.orders import Breach
from loopline_worker.timings import CHECK_CLOSELY_EVERY_S, CHECK_LIMITS_EVERY_S

if TYPE_CHECKING:
    from loopline_shared.model import Facts
    from loopline_worker.settings import WorkerSettings

_LARGEST_SHARE = 0.75
"""Share of the memory for tasks whose jobs request none: the rest is the owner's."""
_FASTEST_BYTES_A_S = 2**31
"""Fastest growth of a task's memory: as fast as a core can clear pages, or two that share the bus."""
_CHECK_SHARE = 20
"""Shortest time between two checks of the processes, as a multiple of a check's duration."""
_DISK_SHARE = 50
"""Time between two checks of the disk, as a multiple of a check's duration."""
_DISK_GAP_S = 30.0
"""Longest time between two checks of the disk."""
_ENTRY_BYTES = 4096
"""Counted at least for each file or folder: even an empty one uses a name and an inode, and a disk has few inodes."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota that this computer allows each attempt."""

    memory_bytes: int | None = None  # of the whole computer
    slots: int = 1
    task_memory_bytes: int | None = None  # of a task whose job asks for none; None: its slots' share
    processes: int | None = None
    scratch_bytes: int | None = None
    output_bytes: int | None = None
    value_bytes: int | None = None

    def limits(self, memory_bytes: int | None, slots: int) -> Limits:
        """Return the limits of an attempt that requests this memory (None: none requested) and these slots."""
        return Limits(
            memory_bytes or self.task_memory_bytes or self._share(slots),
            self.processes,
            self.scratch_bytes,
            self.output_bytes,
            cores=slots,
            asks_for_memory=bool(memory_bytes),
            value_bytes=self.value_bytes,
        )

    def _share(self, slots: int) -> int | None:
        if self.memory_bytes is None:
            return None
        return int(self.memory_bytes * _LARGEST_SHARE * min(1.0, slots / self.slots))


def quota_of(settings: WorkerSettings, facts: Facts) -> Quota:
    """Return the quota by the settings."""
    return Quota(
        facts.memory_bytes,
        facts.slots,
        task_memory_bytes=settings.task_memory_bytes,
        processes=settings.max_processes,
        scratch_bytes=settings.scratch_limit_bytes,
        output_bytes=settings.output_flood_bytes,
        value_bytes=settings.outputs_limit_bytes,
    )


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
        self._pids: Sequence[int] = ()
        self._left_bytes: int | None = None  # memory left until the limit; None: the system enforces it
        self._due = 0.0
        self._next_disk_check = 0.0
        self._disk_check: asyncio.Future[None] | None = None

    def check(self, now: float) -> float:
        """Check the limits if a check is due (``now`` by ``time.monotonic``); the disk is read in a thread.

        Return when the next check is due: before memory can exceed its limit, unless the system enforces that.
        """
        if now < self._due:
            return self._due
        if breach := self._find_breach():
            self._on_breach(breach)
        elif now >= self._next_disk_check and (self._disk_check is None or self._disk_check.done()):
            self._disk_check = asyncio.ensure_future(self._check_disk())
        self._due = now + max(time_to_fill(self._left_bytes), _CHECK_SHARE * (time.monotonic() - now))
        return self._due

    def stop(self) -> None:
        """Stop reading the disk."""
        if self._disk_check:
            self._disk_check.cancel()

    async def _check_disk(self) -> None:
        if breach := await self._find_disk_breach():
            self._on_breach(breach)

    def _find_breach(self) -> Breach | None:
        usage, limits = self._measure(), self._limits
        self._pids = usage.pids
        kept = limits.memory_bytes is None or usage.memory_is_kept
        self._left_bytes = None if kept else (limits.memory_bytes or 0) - usage.memory_bytes
        if usage.breach:
            return usage.breach
        if is_over(usage.memory_bytes, limits.memory_bytes):
            return Breach.MEMORY
        if is_over(usage.processes, limits.processes):
            return Breach.PROCESSES
        return Breach.OUTPUT if is_over(self._output_bytes(), limits.output_bytes) else None

    async def _find_disk_breach(self) -> Breach | None:
        if self._limits.scratch_bytes is None:
            return None
        began = time.monotonic()
        is_full = await asyncio.to_thread(fills, self._folder, self._limits.scratch_bytes, self._pids)
        ended = time.monotonic()
        self._next_disk_check = ended + min(_DISK_SHARE * (ended - began), _DISK_GAP_S)
        return Breach.SCRATCH if is_full else None


def fills(folder: Path, limit_bytes: int, pids: Sequence[int] = ()) -> bool:
    """True if a folder takes at least ``limit_bytes`` of the disk, or is nested too deeply to be measured.

    Deleted files that a process of ``pids`` has open count; folders that the agent may not read do not.
    """
    try:
        deleted_bytes = open_files.deleted_bytes(pids, folder.stat().st_dev) if pids else 0
        return _fills(folder, limit_bytes - deleted_bytes)
    except FileNotFoundError:  # it has ended
        return False
    except RecursionError:
        return True


def _fills(folder: Path, limit_bytes: int) -> bool:
    left = limit_bytes
    if left <= 0:
        return True
    closed: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=closed.append):
        for name in (*folders, *names):
            left -= _disk_bytes(os.path.join(place, name))  # noqa: PTH118 - there may be very many
            if left <= 0:
                return True
    if closed and (zygote := requests.inherited()):  # folders of a task with a user of its own
        with suppress(OSError):
            return zygote.used_bytes(str(folder)) >= limit_bytes
    return False


def _disk_bytes(file: str) -> int:
    try:
        status = os.lstat(file)
    except OSError:
        return 0
    return max(_ENTRY_BYTES, 512 * status.st_blocks if hasattr(status, "st_blocks") else status.st_size)


def time_to_fill(left_bytes: int | None) -> float:
    """Return the seconds in which a task may use this much more memory, within the bounds of the check interval."""
    if left_bytes is None:
        return CHECK_LIMITS_EVERY_S
    return min(CHECK_LIMITS_EVERY_S, max(CHECK_CLOSELY_EVERY_S, left_bytes / _FASTEST_BYTES_A_S))


def is_over(value: int, limit: int | None) -> bool:
    """True if there is a limit and the value is above it."""
    return limit is not None and value > limit


class Stopwatch:
    """Runs from its creation; ``limit`` sets a time after which ``on_end`` is called."""

    def __init__(self) -> None:
        self._counted_s = 0.0
        self._since: float | None = time.monotonic()
        self._limit_s: float | None = None
        self._on_end: Callable[[], None] = _nothing
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def elapsed_s(self) -> float:
        """Return the time counted until now."""
        return self._counted_s + (0.0 if self._since is None else time.monotonic() - self._since)

    def limit(self, limit_s: float | None, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` once ``limit_s`` is counted; None: never."""
        self._limit_s, self._on_end = limit_s, on_end
        self._set_alarm()

    def stop(self) -> None:
        """Stop counting until ``start()``."""
        if self._since is None:
            return
        self._counted_s, self._since = self._counted_s + time.monotonic() - self._since, None
        if self._alarm:
            self._set_alarm()

    def start(self) -> None:
        """Continue counting."""
        if self._since is None:
            self._since = time.monotonic()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._alarm = None
        if self._limit_s is not None and self._since is not None:
            left_s = max(0.0, self._limit_s - self.elapsed_s)
            self._alarm = asyncio.get_running_loop().call_later(left_s, self._on_end)


def _nothing() -> None: ...
