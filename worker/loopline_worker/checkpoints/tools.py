"""The parts of the agent that checkpoints need."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from loopline_shared.model import Name
from loopline_worker.checkpoints.folder_snapshot import TakenFolder
from loopline_worker.checkpoints.local_store import LocalStore
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.files.cache import Cache
from loopline_worker.files.uploads import Uploads
from loopline_worker.supervisor import priority
from loopline_worker.task_group import TaskGroup

_NICE = 10


def _yield_to_others() -> None:
    """Give the calling thread a low priority, and the lowest one for the disk."""
    if sys.platform == "linux":  # elsewhere a thread has none of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
        priority.lower_disk_access()


@dataclass(slots=True)
class CheckpointTools:
    """Parts of the agent for all attempts. ``free_bytes``: free space on its disk, less the reserve."""

    worker: Name
    store: LocalStore
    cache: Cache
    uploads: Uploads
    allowance: NetworkAllowance
    task_group: TaskGroup
    free_bytes: Callable[[], int]
    takers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "take"))
    readers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "checkpoint", initializer=_yield_to_others)
    )
    taken: set[TakenFolder] = field(default_factory=set)  # being read, perhaps under leases
    is_closed: bool = False  # the agent ends

    def check_leases(self) -> None:
        """Release the files that a program waits to write to."""
        for taken in list(self.taken):  # other threads add to it
            taken.check_leases()

    def close(self) -> None:
        """End all threads. Snapshots that are not stored yet are dropped."""
        self.is_closed = True
        for taken in list(self.taken):
            taken.is_broken = True
        self.takers.shutdown(wait=False)
        self.readers.shutdown(wait=False, cancel_futures=True)


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Do these at the same time. The first failure cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def in_thread(work: Callable[..., None], *arguments: object) -> None:
    """Do this in a thread, to its end even if cancelled: it writes into a folder that is removed afterwards."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
