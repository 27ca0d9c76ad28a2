"""Processes as Linux shows them in /proc. Elsewhere nothing is seen here, and callers do with less."""

from __future__ import annotations

import errno
import os

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Ours, not the process's: raised, lest what cannot be looked at now is taken for gone."""


class Process:
    """One process, as it is now."""

    __slots__ = ("cpu_s", "memory_bytes", "parent", "pid", "session", "state", "terminal", "threads", "waited_cpu_s")

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name before may hold anything, brackets included
        user, system, waited_user, waited_system = (int(ticks) / _TICKS_PER_S for ticks in fields[11:15])
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.terminal = _device(int(fields[4]))  # that it is controlled by; 0: none
        self.threads = int(fields[17])
        self.cpu_s = user + system
        self.waited_cpu_s = waited_user + waited_system  # of children that have ended, and of theirs
        self.memory_bytes = int(fields[21]) * _PAGE_BYTES


def look(pid: int) -> Process | None:
    """None where there is none, and where /proc is not."""
    stat = read(f"/proc/{pid}/stat")
    return Process(pid, stat) if stat else None


def own_memory_bytes(pid: int) -> int:
    """What a process uses, memory that it shares divided among those that share it; slow, 0 where it is not told."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def threads_of_user() -> int:
    """Of all processes of our user: what RLIMIT_NPROC is measured against. 0 where /proc is not."""
    user, count = os.getuid(), 0
    for pid in _pids("/proc"):
        try:
            tasks = os.stat(f"/proc/{pid}/task")  # noqa: PTH116
        except OSError:
            continue
        if tasks.st_uid == user:
            count += tasks.st_nlink - 2
    return count


def descendants(pid: int) -> list[int]:
    """Children, their children and so on; empty where there are none, and where /proc is not."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def children(pid: int) -> list[int]:
    if not _LISTS_CHILDREN:
        return [child for child in _pids("/proc") if (process := look(child)) and process.parent == pid]
    threads = _pids(f"/proc/{pid}/task")
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def read(path: str) -> bytes:
    """A small file whole; empty where it cannot be read, OSError where we have no file descriptor left for it."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise
        return b""
    try:
        content = b""
        while part := os.read(fd, 65536):
            content += part
    except OSError:  # the process ended meanwhile
        return b""
    finally:
        os.close(fd)
    return content


def write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _pids(folder: str) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise
        return []


def _device(number: int) -> int:
    """As os.stat tells of a device; the kernel writes it here in another form."""
    return os.makedev(number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00) if number else 0


_OWN = os.getpid()
_LISTS_CHILDREN = os.access(f"/proc/{_OWN}/task/{_OWN}/children", os.R_OK)  # not every kernel is built with it
