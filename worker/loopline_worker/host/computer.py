"""The part of this computer that the agent may use: limits of a container or a service included."""

from __future__ import annotations

import math
import os
import platform
import sys
from pathlib import Path

import psutil

from loopline_shared import __version__
from loopline_shared.model import Facts
from loopline_worker.host.cgroup import Cgroup, is_contained

_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}


class Computer:
    """Capacity of this computer. ``cores`` may be used; ``busy_cpu_s`` counts the time of ``measured_cores``.

    In a container both are the container's, so that containers on one host do not back off from one another's work.
    """

    def __init__(self, cgroup: Cgroup | None, contained: bool) -> None:
        present = _usable_cpus()
        self._cgroup = cgroup
        self._group = cgroup if cgroup and contained and cgroup.cpu_s() is not None else None
        self.cores = min(float(present), (cgroup and cgroup.cpu_limit()) or present)
        self.measured_cores = self.cores if self._group else float(psutil.cpu_count() or present)

    @classmethod
    def here(cls) -> Computer:
        """Return this computer."""
        return cls(Cgroup.find(), is_contained())

    @property
    def cpus(self) -> int:
        """Whole cores that may be used; at least one."""
        return max(1, math.floor(self.cores))

    def busy_cpu_s(self) -> float:
        """Return the CPU time used so far, by all processes."""
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
