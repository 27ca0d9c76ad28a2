"""Files without a name: deleted while open, and memory that is a file.

Read in a thread: the kernel may let a reader wait for the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from loopline_worker.supervisor import processes

_BLOCK_BYTES = 512
_IN_MEMORY = "/memfd:"
_MOUNTED = {"/dev/shm", "/tmp"}  # noqa: S108


def deleted_bytes(pids: Iterable[int], device: int) -> int:
    """Return what deleted files that these processes hold open take on a disk, by its ``st_dev``."""
    found = {status.st_ino: status for _, status in _open_without_name(pids) if status.st_dev == device}
    return sum(_BLOCK_BYTES * status.st_blocks for status in found.values())


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the memory in files of these processes: of memfd_create(2), and in a /dev/shm or /tmp of their own."""
    pids = list(pids)
    open_ones = [one for one in _open_without_name(pids) if one[0].startswith(_IN_MEMORY)]
    held = {(status.st_dev, status.st_ino): _BLOCK_BYTES * status.st_blocks for _, status in open_ones}
    return sum(held.values()) + sum(_mounted_bytes(pid) for pid in pids[:1])  # all of a task have the same


def _mounted_bytes(pid: int) -> int:
    """Return what is in the folders in memory that a process has for its own."""
    lines = [line.split() for line in processes.read(f"/proc/{pid}/mountinfo").splitlines()]
    last = {os.fsdecode(words[4]): words for words in lines}  # a mount hides the files below it
    used_bytes = 0
    for folder in _MOUNTED & last.keys():
        words = last[folder]
        with suppress(OSError):
            is_own = os.stat(folder).st_dev != os.makedev(*map(int, words[2].split(b":")))  # noqa: PTH116
            if is_own and words[words.index(b"-") + 1] == b"tmpfs":
                usage = os.statvfs(f"/proc/{pid}/root{folder}")
                used_bytes += usage.f_frsize * (usage.f_blocks - usage.f_bfree)
    return used_bytes


def _open_without_name(pids: Iterable[int]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the target and the status of each open regular file without a name."""
    for pid in pids:
        with suppress(OSError):  # it has ended, or is none of ours
            for file in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    status = os.stat(file.path)  # noqa: PTH116
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        yield os.readlink(file.path), status  # noqa: PTH115
