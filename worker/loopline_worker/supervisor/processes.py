"""Processes as Linux shows them in /proc. On other systems nothing is found, and callers do with less."""

from __future__ import annotations

import errno
import os

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of the reader, not of the process: raised, so that a process that cannot be read is not taken for gone."""


class Process:
    """Process as it was when its ``stat`` was read."""

    __slots__ = (
        "address_bytes",
        "cpu_s",
        "memory_bytes",
        "parent",
        "pid",
        "session",
        "state",
        "terminal",
        "threads",
        "waited_cpu_s",
    )

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything, brackets included
        user, system, waited_user, waited_system = (int(ticks) / _TICKS_PER_S for ticks in fields[11:15])
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.terminal = _device(int(fields[4]))  # the terminal that controls it; 0: none
        self.threads = int(fields[17])
        self.cpu_s = user + system
        self.waited_cpu_s = waited_user + waited_system  # of children that have ended, and of theirs
        self.address_bytes = int(fields[20])
        self.memory_bytes = int(fields[21]) * _PAGE_BYTES


def status(pid: int) -> Process | None:
    """Return the process with this number, or None."""
    stat = read(f"/proc/{pid}/stat")
    return Process(pid, stat) if stat else None


def thread_states(pid: int) -> list[str]:
    """Return the state of each thread of a process; empty if it is gone."""
    stats = (read(f"/proc/{pid}/task/{thread}/stat") for thread in _pids(f"/proc/{pid}/task"))
    return [chr(stat[stat.rindex(b")") + 2]) for stat in stats if stat]


def private_bytes(pid: int) -> int:
    """Return the memory of a process that is in no file; 0 if it is unknown. What it shares since a fork counts."""
    sizes = read(f"/proc/{pid}/statm").split()
    return (int(sizes[1]) - int(sizes[2])) * _PAGE_BYTES if sizes else 0


def memory_shares(pid: int) -> tuple[int, int]:
    """Return the bytes of a process without, and with its share of, mapped shared memory; zeros if unknown. Slow."""
    found = {
        words[0]: int(words[1]) * 1024
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]
        if len(words := line.split()) == 3
    }
    shared = found.get(b"Pss_Shmem:", 0)
    return found.get(b"Pss:", 0) - shared, shared


def threads_of_user() -> int:
    """Count the threads of all processes of this user, as RLIMIT_NPROC does; 0 without /proc."""
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
    """Return children, their children and so on; empty without /proc."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def children(pid: int) -> list[int]:
    """Return the processes that this one is the parent of."""
    if not _LISTS_CHILDREN:
        return [child for child in _pids("/proc") if (process := status(child)) and process.parent == pid]
    threads = _pids(f"/proc/{pid}/task")
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def read(path: str) -> bytes:
    """Return a small file's content, empty if it cannot be read. Raises OSError if no file descriptor is left."""
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
    except OSError:  # the process has ended
        return b""
    finally:
        os.close(fd)
    return content


def write(path: str, content: bytes) -> None:
    """Write to a file that exists, in one call. Raises OSError."""
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
    """Return the device's number as ``os.stat`` has it; the kernel writes another form to /proc."""
    return os.makedev(number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00) if number else 0


_OWN = os.getpid()
_LISTS_CHILDREN = os.access(f"/proc/{_OWN}/task/{_OWN}/children", os.R_OK)  # not every kernel is built with it
