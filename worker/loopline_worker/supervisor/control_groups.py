"""Control groups of one slot (cgroups(7)): limits that the kernel enforces, whatever a task does.

``launch/delegation.py`` finds the *places*: folders of the agent's own, by the operations possible there. A
supervisor makes a group below them and enters it for good: its children start there at no cost, while entering a
group costs more than a short task. So what the supervisor itself uses is added to limits and subtracted from usage.
The zygote removes the group when the supervisor is gone. Where a place is missing, callers do with less.

========= ======================================= ======================================
``core``  freeze without any signal               version 2, with or without controllers
``memory`` memory, all at once when it runs out    version 2, or 1
``pids``  processes and threads                   version 2, or 1
``cpu``   idle weight, all slots in one           version 1; in version 2 ``core`` may have it
========= ======================================= ======================================

What is to be frozen is moved into a group below, because the supervisor itself must go on.
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor import processes
from loopline_worker.supervisor.orders import Breach

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Iterable

Places = dict[str, str]
Hits = tuple[int, int]
"""How often memory ran out, and how often another process was refused."""

_FROZEN = "frozen"
_COUNTERS = {"memory": ("memory.events", "memory.oom_control"), "pids": ("pids.events",)}
_USAGE, _DETAILS = "usage", "details"
_OWN_PROCESSES = 1
_CELL_PROCESSES = 3
"""Bubblewrap and the first process in it, which has a second thread for a moment as it starts a task."""
_OWN_BYTES = 2**19
_LEAST_BYTES = 2**24
"""A smaller limit on memory is watched: the kernel might kill the supervisor, as the larger process."""
_MOST_LEFT_BYTES = _LEAST_BYTES // 2


def name_of(supervisor: int) -> str:
    """Return the name of a supervisor's group."""
    return f"supervisor-{supervisor}"


class ControlGroup:
    """The group of a supervisor and its descendants, below the ``places``. It is inactive without places."""

    def __init__(self, places: Places, name: str) -> None:
        self._folders: dict[str, str] = {
            kind: f"{places[kind]}/{name}" for kind in ("core", "memory", "pids") if kind in places
        }
        self._entered = {self._folders[kind] for kind in ("memory", "pids") if kind in places}
        if "cpu" in places:
            self._entered.add(places["cpu"])
        self._frozen = f"{self._folders['core']}/{_FROZEN}" if "core" in places else ""
        self._limits: tuple[int | None, int | None] = None, None
        self._counters: dict[str, int] | None = None  # open files
        self._counted: list[bytes] = []
        self._hits = 0, 0
        self._usage: int | None = None  # an open file
        self._details = -1  # the same, of memory
        self._own_bytes, self._own_processes = _OWN_BYTES, _OWN_PROCESSES

    def allow_for_cell(self, own_bytes: int) -> None:
        """Count a cell's own memory and its two processes as the supervisor's."""
        self._own_bytes, self._own_processes = _OWN_BYTES + own_bytes, _OWN_PROCESSES + _CELL_PROCESSES
        self._limits = None, None

    def make(self) -> None:
        """Make its folders. Raises OSError."""
        for folder in (*set(self._folders.values()), self._frozen):
            if folder:
                with suppress(FileExistsError):
                    os.mkdir(folder)  # noqa: PTH102 - pathlib is not light

    def enter(self) -> None:
        """Put the calling process and its future children into the group."""
        for folder in self._entered:
            processes.write(f"{folder}/cgroup.procs", b"0")

    def limit(self, memory_bytes: int | None, most_processes: int | None) -> None:
        """Set the limits of the next task, unless the last task had the same. Raises OSError."""
        wanted = memory_bytes, most_processes
        if wanted == self._limits:
            return
        if memory_bytes != self._limits[0]:
            self._limit_memory(None if memory_bytes is None else max(memory_bytes, _LEAST_BYTES) + self._own_bytes)
        if most_processes != self._limits[1]:
            self._set("pids", "pids.max", "max" if most_processes is None else most_processes + self._own_processes)
        self._limits = wanted

    def add_to_frozen(self, pid: int) -> None:
        """Move a process to the part that can be frozen. Raises OSError if only a signal can stop it."""
        if not self._frozen:
            raise OSError("there is no group for frozen processes")
        processes.write(f"{self._frozen}/cgroup.procs", str(pid).encode())

    def freeze(self, frozen: bool) -> bool:
        """Freeze or thaw the frozen part. False if that has to be done by signals."""
        try:
            if self._frozen:
                processes.write(f"{self._frozen}/cgroup.freeze", b"1" if frozen else b"0")
        except OSError:
            return False
        return bool(self._frozen)

    def is_set_to_freeze(self) -> bool:
        """True if the frozen part is frozen by this class, or about to be."""
        return bool(self._frozen) and processes.read(f"{self._frozen}/cgroup.freeze").strip() == b"1"

    def stopped(self) -> set[int]:
        """Return the processes of the frozen part, once all of them have stopped; empty before."""
        if not self._frozen or not _numbers(processes.read(f"{self._frozen}/cgroup.events")).get("frozen"):
            return set()
        return self.frozen_part()

    def frozen_part(self) -> set[int]:
        """Return the processes in the part that can be frozen."""
        return set(map(int, processes.read(f"{self._frozen}/cgroup.procs").split()))

    def memory_bytes(self) -> int | None:
        """Return the memory that cannot be dropped, less the supervisor's; None if it is unknown."""
        stat = self._stat("memory", "memory.stat")
        if not stat:
            return None
        old = "total_rss" in stat
        used = stat["total_rss"] + stat.get("total_shmem", 0) if old else stat["anon"] + stat.get("shmem", 0)
        return max(0, used - self._own_bytes)

    def processes(self) -> int | None:
        """Return the number of processes and threads, less the supervisor; None if it is unknown."""
        number = _number(self._read("pids", "pids.current"))
        return None if number is None else max(0, number - self._own_processes)

    def hits(self) -> Hits:
        """Return how often all tasks in it have hit limits. Raises OSError if that cannot be read."""
        if self._counters is None:
            opened = {kind: self._open(kind, *files) for kind, files in _COUNTERS.items()}
            self._counters = {kind: file for kind, file in opened.items() if file >= 0}
        counted = [os.pread(file, 4096, 0) for file in self._counters.values()]
        if counted != self._counted:
            self._counted = counted
            numbers = dict(zip(self._counters, map(_numbers, counted), strict=True))
            self._hits = numbers.get("memory", {}).get("oom_kill", 0), numbers.get("pids", {}).get("max", 0)
        return self._hits

    def is_spent(self) -> bool:
        """True if ended tasks left memory behind (files in /dev/shm) that would count against the next one.

        Raises OSError if that cannot be read.
        """
        if self._usage is None:
            self._usage = self._open("memory", "memory.current", "memory.usage_in_bytes")
        if self._usage < 0:
            return False
        with_cache_bytes = _number(os.pread(self._usage, 100, 0)) or 0  # which can be dropped, but costs less to read
        return with_cache_bytes > _MOST_LEFT_BYTES + self._own_bytes and (self.memory_bytes() or 0) > _MOST_LEFT_BYTES

    def open_counters(self) -> tuple[dict[str, int], int]:
        """Open what ``hits`` and ``is_spent`` read. Return the files, and the memory that is not the tasks'.

        Raises OSError.
        """
        self.hits()
        self.is_spent()
        if self._details < 0:
            self._details = self._open("memory", "memory.stat")
        files = {
            **(self._counters or {}),
            _USAGE: -1 if self._usage is None else self._usage,
            _DETAILS: self._details,
        }
        return {name: file for name, file in files.items() if file >= 0}, self._own_bytes

    def adopt_counters(self, files: dict[str, int], own_bytes: int) -> None:
        """Read these files, which another process has opened, in a place where the group's folders are not seen."""
        self._counters = {name: file for name, file in files.items() if name in _COUNTERS}
        self._usage, self._details = files.get(_USAGE, -1), files.get(_DETAILS, -1)
        self._own_bytes = own_bytes

    def close(self) -> None:
        """Close the files that are open for ``hits``; the supervisor keeps its others until it exits."""
        for file in (self._counters or {}).values():
            os.close(file)
        self._counters = None

    def remove(self) -> bool:
        """Remove its folders. False if the kernel still clears up in them."""
        gone = [_remove(folder) for folder in (self._frozen, *set(self._folders.values())) if folder]
        return all(gone)

    def _open(self, kind: str, *files: str) -> int:
        """Open the first of these files that exists; -1 if none does."""
        for file in files:
            path = f"{self._folders.get(kind)}/{file}"
            if os.access(path, os.R_OK):
                return os.open(path, os.O_RDONLY)
        return -1

    def _limit_memory(self, limit_bytes: int | None) -> None:
        is_v2 = os.access(f"{self._folders.get('memory')}/memory.max", os.W_OK)
        limit = ("max" if is_v2 else -1) if limit_bytes is None else limit_bytes
        if is_v2:
            self._set("memory", "memory.max", limit)
            with suppress(OSError):  # where there is no swap, it need not be forbidden
                self._set("memory", "memory.swap.max", "max" if limit_bytes is None else 0)
            return
        with suppress(OSError):  # of the two, the one with swap may never be the lower
            self._set("memory", "memory.memsw.limit_in_bytes", -1)
        self._set("memory", "memory.limit_in_bytes", limit)
        with suppress(OSError):
            self._set("memory", "memory.memsw.limit_in_bytes", limit)

    def _set(self, kind: str, file: str, value: int | str) -> None:
        if kind in self._folders:
            processes.write(f"{self._folders[kind]}/{file}", str(value).encode())

    def _stat(self, kind: str, file: str) -> dict[str, int]:
        return _numbers(os.pread(self._details, 65536, 0) if self._details >= 0 else self._read(kind, file))

    def _read(self, kind: str, file: str) -> bytes:
        return processes.read(f"{self._folders[kind]}/{file}") if kind in self._folders else b""


def breach(before: Hits, after: Hits) -> Breach | None:
    """Return the limit that was hit in between, or None."""
    if after[0] > before[0]:
        return Breach.MEMORY
    return Breach.PROCESSES if after[1] > before[1] else None


def remove_places(folders: Iterable[str]) -> bool:
    """Remove these folders with the groups in them. False if there still is a process in one of them."""
    gone = [_remove(left) for folder in folders for left in _deepest_first(folder)]
    return all(gone)


def _deepest_first(folder: str) -> list[str]:
    """Return a folder and all below it, the deepest first."""
    return [*(left for inner in _folders_in(folder) for left in _deepest_first(inner)), folder]


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _numbers(text: bytes) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0].decode(): int(pair[1]) for pair in pairs if len(pair) == 2}


def _number(text: bytes) -> int | None:
    return int(text) if text.strip().isdigit() else None
