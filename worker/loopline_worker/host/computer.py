"""The part of this computer that the agent may use.

A container or a service may limit it by Linux control groups, versions 1 and 2. A limit may be set on our own group
or on any visible group above it: the tightest counts.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import psutil

from loopline_shared import __version__
from loopline_shared.model import Facts

_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}
_ROOT = Path("/")
_MARKING_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
_UNLIMITED = 2**62
"""Version 1 writes about 2**63 for "no limit"."""


class Computer:
    """Capacity of this computer. ``cores`` may be used now; ``busy_cpu_s`` counts the time of ``measured_cores``.

    ``taken_cores``: usable when the worker started, but not now.

    In a container both are the container's, so that containers on one host do not back off from one another's work.
    """

    def __init__(self, cgroup: Cgroup | None, contained: bool) -> None:
        self._cgroup, self.taken_cores = cgroup, 0.0
        self._group = cgroup if cgroup and contained and cgroup.cpu_s() is not None else None
        self.cores = self._cores_at_start = self._usable_cores()
        self.measured_cores = self.cores if self._group else float(psutil.cpu_count() or self.cores)

    @classmethod
    def here(cls) -> Computer:
        """Return this computer."""
        return cls(Cgroup.find(), is_contained())

    def refresh(self) -> None:
        """Notice cores that were taken away or given back, by an affinity, a control group or the kernel."""
        self.cores = self._usable_cores()
        self.taken_cores = max(0.0, self._cores_at_start - self.cores)

    def _usable_cores(self) -> float:
        present = _usable_cpus()
        return min(float(present), (self._cgroup and self._cgroup.cpu_limit()) or present)

    @property
    def cpus(self) -> int:
        """Whole cores that may be used; at least one."""
        return max(1, math.floor(self.cores))

    def busy_cpu_s(self) -> float:
        """Return the CPU seconds used by all processes since the boot."""
        used_s = self._group.cpu_s() if self._group else None
        if used_s is not None:
            return used_s
        times: dict[str, float] = psutil.cpu_times()._asdict()
        counted_twice = times.get("guest", 0.0) + times.get("guest_nice", 0.0)
        return sum(times.values()) - times["idle"] - times.get("iowait", 0.0) - counted_twice

    def memory_bytes(self) -> int:
        """Return the memory that may be used."""
        limit = self._cgroup.memory_limit_bytes() if self._cgroup else None
        total = psutil.virtual_memory().total
        return total if limit is None else min(total, limit)

    def memory_available_bytes(self) -> int:
        """Return the memory that is free to use."""
        left = self._cgroup.memory_left_bytes() if self._cgroup else None
        available = psutil.virtual_memory().available
        return available if left is None else min(available, left)


def facts(
    computer: Computer,
    slots: int | None,
    labels: tuple[str, ...],
    speed: float = 1.0,
    *,
    network: bool = True,
    functions: str | None = None,
) -> Facts:
    """Return what the agent reports about its computer when it connects."""
    machine = platform.machine().lower()
    return Facts(
        os=_SYSTEMS.get(sys.platform, sys.platform)[:20],
        arch=_ARCHITECTURES.get(machine, machine)[:20],
        python=platform.python_version()[:20],
        agent=__version__[:40],
        model=processor()[:500],
        cpus=computer.cpus,
        memory_bytes=computer.memory_bytes(),
        slots=slots or computer.cpus,
        labels=labels,
        speed=speed,
        network=network,
        functions=functions,
    )


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Return the processor's name as its maker writes it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_of(folder: Path, root: Path = _ROOT) -> str:
    """Return what tells this computer, and the agent of this data folder, from a copy, until it is started again.

    A cloned disk has the machine id and the folder of its original, but never its boot id, nor often its host name.
    """
    status = folder.stat()
    marks = [
        _read(root / "etc/machine-id").strip(),
        _read(root / "proc/sys/kernel/random/boot_id").strip() or f"{uuid.getnode()} {psutil.boot_time():.0f}",
        platform.node(),
        f"{status.st_dev}:{status.st_ino}",
    ]
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]


def is_contained(root: Path = _ROOT) -> bool:
    """True if this is a container, where the computer itself cannot be measured.

    A virtual machine made from a container's image bears its marks, but its kernel's own threads are in sight.
    """
    if _read(root / "proc/2/comm").strip() == "kthreadd":
        return False
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or any(os.environ.get(name) for name in _MARKING_VARIABLES)


class Cgroup(ABC):
    """The group of processes that this one belongs to."""

    @staticmethod
    def find(root: Path = _ROOT) -> Cgroup | None:
        """Return the agent's group; None on a system without control groups."""
        lines = (line.split(":", 2) for line in _read(root / "proc/self/cgroup").splitlines())
        paths = {name: path for _, names, path in lines for name in names.split(",")}
        mount = root / "sys/fs/cgroup"
        if (mount / "cgroup.controllers").exists() and "" in paths:
            return _Version2(mount, paths[""])
        return _Version1(mount, paths) if "cpu" in paths or "memory" in paths else None

    @abstractmethod
    def cpu_limit(self) -> float | None:
        """Return the number of cores that the group may use; None if it is unlimited."""

    @abstractmethod
    def cpu_s(self) -> float | None:
        """Return the CPU seconds that the group has used; None if unknown."""

    @abstractmethod
    def memory(self) -> Iterator[tuple[int, int]]:
        """Yield limit and usage in bytes, without files that can be dropped, of every group with a limit."""

    def memory_limit_bytes(self) -> int | None:
        """Return the tightest limit on memory; None if it is unlimited."""
        return min((limit for limit, _ in self.memory()), default=None)

    def memory_left_bytes(self) -> int | None:
        """Return the memory left below the tightest limit; None if it is unlimited."""
        return min((max(0, limit - used) for limit, used in self.memory()), default=None)


class _Version2(Cgroup):
    def __init__(self, mount: Path, path: str) -> None:
        self._levels = _levels(mount, path)

    def cpu_limit(self) -> float | None:
        limits = [_read(level / "cpu.max").split() for level in self._levels]
        return min((int(limit[0]) / int(limit[1]) for limit in limits if limit and limit[0] != "max"), default=None)

    def cpu_s(self) -> float | None:
        used_us = _stat(self._levels[0] / "cpu.stat").get("usage_usec")
        return None if used_us is None else used_us / 1e6

    def memory(self) -> Iterator[tuple[int, int]]:
        for level in self._levels:
            limit = _number(level / "memory.max")
            if limit is not None and (used := _number(level / "memory.current")) is not None:
                yield limit, used - _stat(level / "memory.stat").get("inactive_file", 0)


class _Version1(Cgroup):
    def __init__(self, mount: Path, paths: dict[str, str]) -> None:
        self._cpu, self._cpuacct, self._memory = (
            _levels(mount / name, paths.get(name, "/")) for name in ("cpu", "cpuacct", "memory")
        )

    def cpu_limit(self) -> float | None:
        limits = [
            quota / period
            for level in self._cpu
            if (quota := _number(level / "cpu.cfs_quota_us") or 0) > 0
            and (period := _number(level / "cpu.cfs_period_us") or 0) > 0
        ]
        return min(limits, default=None)

    def cpu_s(self) -> float | None:
        used_ns = _number(self._cpuacct[0] / "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def memory(self) -> Iterator[tuple[int, int]]:
        for level in self._memory:
            limit = _number(level / "memory.limit_in_bytes")
            if limit is None or limit >= _UNLIMITED:
                continue
            if (used := _number(level / "memory.usage_in_bytes")) is not None:
                yield limit, used - _stat(level / "memory.stat").get("total_inactive_file", 0)


def _levels(mount: Path, path: str) -> list[Path]:
    """Return our group's folder and those above it; a container often sees only its own, mounted as the root."""
    own = mount / path.strip("/")
    if not own.is_dir():
        return [mount]
    return [own, *(level for level in own.parents if level.is_relative_to(mount))]


def _stat(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in _read(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _number(file: Path) -> int | None:
    text = _read(file).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
