"""One slot's control groups (cgroups(7)): limits that the kernel keeps for us, whatever a task does.

``delegation.py`` finds out which *places* there are: folders of the agent's own, by what can be done there. A guard
makes a group below them and enters it for good: what it starts is born there, which costs nothing, while entering
costs more than a short task. So what the guard itself takes is added to limits and subtracted from what is used. The
launcher removes the group when the guard is gone. Where a place is missing, callers do with less.

========= ======================================= ======================================
``core``  freeze without any signal               version 2, with or without controllers
``memory`` memory, all at once when it runs out    version 2, or 1
``pids``  processes and threads                   version 2, or 1
``cpu``   idle weight, all slots in one           version 1; in version 2 ``core`` may have it
========= ======================================= ======================================

What is to stand still is moved into a group below, which is frozen, for the guard must not stop with it.
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

_LEFT = "frozen"
_COUNTERS = {"memory": ("memory.events", "memory.oom_control"), "pids": ("pids.events",)}
_GUARD_PROCESSES = 1
_GUARD_BYTES = 2**19
_LEAST_BYTES = 2**24
"""A smaller limit on memory is watched: the kernel might find the guard larger than the task, and kill that."""
_MOST_LEFT_BYTES = _LEAST_BYTES // 2


def name_of(guard: int) -> str:
    """Of a guard's group."""
    return f"guard-{guard}"


class Group:
    """Of a guard with all that it starts, below the ``places``. Without places it is nowhere, and does nothing."""

    def __init__(self, places: Places, name: str) -> None:
        self._folders: dict[str, str] = {
            kind: f"{places[kind]}/{name}" for kind in ("core", "memory", "pids") if kind in places
        }
        self._entered = {self._folders[kind] for kind in ("memory", "pids") if kind in places}
        if "cpu" in places:
            self._entered.add(places["cpu"])
        self._still = f"{self._folders['core']}/{_LEFT}" if "core" in places else ""
        self._limits: tuple[int | None, int | None] = None, None
        self._counters: dict[str, int] | None = None  # open files
        self._counted: list[bytes] = []
        self._hits = 0, 0
        self._usage: int | None = None  # an open file

    def make(self) -> None:
        """OSError where it cannot be had."""
        for folder in (*set(self._folders.values()), self._still):
            if folder:
                with suppress(FileExistsError):
                    os.mkdir(folder)  # noqa: PTH102 - pathlib is not light

    def enter(self) -> None:
        """For the calling process and all that it starts from now on."""
        for folder in self._entered:
            processes.write(f"{folder}/cgroup.procs", b"0")

    def limit(self, memory_bytes: int | None, most_processes: int | None) -> None:
        """Of the next task, if they are not those of the last one. OSError."""
        wanted = memory_bytes, most_processes
        if wanted == self._limits:
            return
        if memory_bytes != self._limits[0]:
            self._limit_memory(None if memory_bytes is None else max(memory_bytes, _LEAST_BYTES) + _GUARD_BYTES)
        if most_processes != self._limits[1]:
            self._set("pids", "pids.max", "max" if most_processes is None else most_processes + _GUARD_PROCESSES)
        self._limits = wanted

    def hold(self, pid: int) -> None:
        """Have a process stand still; OSError where that has to be done by a signal."""
        if not self._still:
            raise OSError("there is no group for what stands still")
        processes.write(f"{self._still}/cgroup.procs", str(pid).encode())

    def freeze(self, frozen: bool) -> bool:
        """All that is held stops, or goes on; False where that has to be done by signals."""
        try:
            self._freeze(frozen)
        except OSError:
            return False
        return bool(self._still)

    def is_told_to_freeze(self) -> bool:
        """Whether what it holds stands, or is about to, by our own word."""
        return bool(self._still) and processes.read(f"{self._still}/cgroup.freeze").strip() == b"1"

    def standing(self) -> set[int]:
        """The processes that it holds, once all of them have stopped."""
        if not self._still or not _numbers(processes.read(f"{self._still}/cgroup.events")).get("frozen"):
            return set()
        return set(map(int, processes.read(f"{self._still}/cgroup.procs").split()))

    def memory_bytes(self) -> int | None:
        """What cannot be dropped: anonymous memory, and files in memory; without the guard's."""
        stat = self._stat("memory", "memory.stat")
        if not stat:
            return None
        old = "total_rss" in stat
        used = stat["total_rss"] + stat.get("total_shmem", 0) if old else stat["anon"] + stat.get("shmem", 0)
        return max(0, used - _GUARD_BYTES)

    def processes(self) -> int | None:
        """With their threads, without the guard."""
        number = _number(self._read("pids", "pids.current"))
        return None if number is None else max(0, number - _GUARD_PROCESSES)

    def hits(self) -> Hits:
        """Of all tasks in it until now. OSError where that cannot be looked at."""
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
        """Whether tasks that are gone left memory behind (files in /dev/shm), which the next one would answer for.
        OSError where that cannot be looked at.
        """
        if self._usage is None:
            self._usage = self._open("memory", "memory.current", "memory.usage_in_bytes")
        if self._usage < 0:
            return False
        with_cache_bytes = _number(os.pread(self._usage, 100, 0)) or 0  # which can be dropped, but costs less to read
        return with_cache_bytes > _MOST_LEFT_BYTES and (self.memory_bytes() or 0) > _MOST_LEFT_BYTES

    def close(self) -> None:
        """The files that are open for ``hits``: whoever asks for more ends with its group."""
        for file in (self._counters or {}).values():
            os.close(file)
        self._counters = None

    def remove(self) -> bool:
        """False where the kernel still clears up in it."""
        gone = [_remove(folder) for folder in (self._still, *set(self._folders.values())) if folder]
        return all(gone)

    def _open(self, kind: str, *files: str) -> int:
        """The first of them that there is, opened; -1: none."""
        for file in files:
            path = f"{self._folders.get(kind)}/{file}"
            if os.access(path, os.R_OK):
                return os.open(path, os.O_RDONLY)
        return -1

    def _freeze(self, frozen: bool) -> None:
        if self._still:
            processes.write(f"{self._still}/cgroup.freeze", b"1" if frozen else b"0")

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
        return _numbers(self._read(kind, file))

    def _read(self, kind: str, file: str) -> bytes:
        return processes.read(f"{self._folders[kind]}/{file}") if kind in self._folders else b""


def breach(before: Hits, after: Hits) -> Breach | None:
    """Return the limit that was hit in between; None if there was none."""
    if after[0] > before[0]:
        return Breach.MEMORY
    return Breach.PROCESSES if after[1] > before[1] else None


def remove_places(folders: Iterable[str]) -> bool:
    """With the groups of guards in them. False where there is still somebody in one of them."""
    gone = [_remove(left) for folder in folders for left in _from_inside(folder)]
    return all(gone)


def _from_inside(folder: str) -> list[str]:
    """A folder and all below it, the deepest first."""
    return [*(left for inner in _folders_in(folder) for left in _from_inside(inner)), folder]


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
