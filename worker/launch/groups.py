"""One attempt's control groups (cgroups(7)): limits that the kernel keeps for us, whatever the task does.

``delegation.py`` finds out which *places* there are: folders of the agent's own, by what can be done there. The
guard makes an attempt's group below them, the task enters before it becomes the job's program, the agent reads how
it goes, and the guard removes it when nothing is left. Where a place is missing, callers do with less.

========= ===================================== ======================================
``core``  kill, freeze, CPU time                version 2, with or without controllers
``memory`` memory, all at once when it runs out version 2, or 1
``pids``  processes and threads                 version 2, or 1
``cpu``   idle weight, all attempts in one      version 1; in version 2 ``core`` may have it
========= ===================================== ======================================
"""

from __future__ import annotations

import os
from contextlib import suppress

from worker.launch import processes

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Iterable

Places = dict[str, str]


class Group:
    """Of the attempt ``name``, below the ``places``. Without places it is nowhere, and does nothing."""

    def __init__(self, places: Places, name: str) -> None:
        own = ("core", "memory", "pids")
        self._folders = {kind: f"{places[kind]}/{name}" for kind in own if kind in places}
        self._shared = [places["cpu"]] if "cpu" in places else []

    def make(self, memory_bytes: int | None, most_processes: int | None) -> None:
        """OSError where it cannot be had."""
        for folder in set(self._folders.values()):
            with suppress(FileExistsError):
                os.mkdir(folder)  # noqa: PTH102 - pathlib is not light
        if memory_bytes is not None:
            self._limit_memory(memory_bytes)
        if most_processes is not None:
            self._set("pids", "pids.max", most_processes)

    def enter(self) -> None:
        """For the calling process and all that it starts."""
        for folder in {*self._folders.values(), *self._shared}:
            processes.write(f"{folder}/cgroup.procs", b"0")

    def kill(self) -> None:
        with suppress(OSError):
            self._set("core", "cgroup.kill", 1)

    def freeze(self, frozen: bool) -> bool:
        """Stop all of it, or let it go on; False where that has to be done by signals."""
        try:
            self._set("core", "cgroup.freeze", int(frozen))
        except OSError:
            return False
        return "core" in self._folders

    def is_told_to_freeze(self) -> bool:
        """Whether it stands, or is about to, by our own word."""
        return self._read("core", "cgroup.freeze").strip() == b"1"

    def is_frozen(self) -> bool:
        """Whether all of it has stopped, where it was this that stopped it."""
        return bool(self._stat("core", "cgroup.events").get("frozen"))

    def cpu_s(self) -> float | None:
        used_us = self._stat("core", "cpu.stat").get("usage_usec")
        return None if used_us is None else used_us / 1e6

    def memory_bytes(self) -> int | None:
        """What cannot be dropped: anonymous memory, and files in memory."""
        stat = self._stat("memory", "memory.stat")
        if not stat:
            return None
        old = "total_rss" in stat
        return stat["total_rss"] + stat.get("total_shmem", 0) if old else stat["anon"] + stat.get("shmem", 0)

    def processes(self) -> int | None:
        """With their threads."""
        return _number(self._read("pids", "pids.current"))

    def breach(self) -> str:
        """Which limit was hit: ``memory``, ``processes``, or none."""
        killed = self._stat("memory", "memory.events") or self._stat("memory", "memory.oom_control")
        if killed.get("oom_kill"):
            return "memory"
        return "processes" if self._stat("pids", "pids.events").get("max") else ""

    def remove(self) -> bool:
        """False where the kernel still clears up in it."""
        gone = [_remove(folder) for folder in set(self._folders.values())]
        return all(gone)

    def _limit_memory(self, limit_bytes: int) -> None:
        is_v2 = os.access(f"{self._folders.get('memory')}/memory.max", os.W_OK)
        self._set("memory", "memory.max" if is_v2 else "memory.limit_in_bytes", limit_bytes)
        with suppress(OSError):  # where there is no swap, it need not be forbidden
            if is_v2:
                self._set("memory", "memory.oom.group", 1)  # version 1 kills one process: the agent ends the others
                self._set("memory", "memory.swap.max", 0)
            else:
                self._set("memory", "memory.memsw.limit_in_bytes", limit_bytes)

    def _set(self, kind: str, file: str, value: int) -> None:
        if kind in self._folders:
            processes.write(f"{self._folders[kind]}/{file}", str(value).encode())

    def _stat(self, kind: str, file: str) -> dict[str, int]:
        pairs = (line.split() for line in self._read(kind, file).splitlines())
        return {pair[0].decode(): int(pair[1]) for pair in pairs if len(pair) == 2}

    def _read(self, kind: str, file: str) -> bytes:
        return processes.read(f"{self._folders[kind]}/{file}") if kind in self._folders else b""


def remove_places(folders: Iterable[str]) -> bool:
    """With the groups of attempts whose guards were killed. False where there is still somebody in one of them."""
    gone = [_remove(inner) for folder in folders for inner in [*_folders_in(folder), folder]]
    return all(gone)


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


def _number(text: bytes) -> int | None:
    return int(text) if text.strip().isdigit() else None
