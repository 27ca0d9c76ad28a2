"""Limits that a container or a service sets on the agent: Linux control groups, versions 1 and 2.

A limit may be set on our own group or on any visible group above it: the tightest counts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def is_contained(root: Path = _ROOT) -> bool:
    """True if this is a container, from which the computer outside cannot be measured."""
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or any(os.environ.get(name) for name in _MARKING_VARIABLES)


_MARKING_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")


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
        """Return the CPU time that the group has used so far; None if it is unknown."""

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
            limit, used = _number(level / "memory.max"), _number(level / "memory.current")
            if limit is not None and used is not None:
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
            limit, used = _number(level / "memory.limit_in_bytes"), _number(level / "memory.usage_in_bytes")
            if limit is not None and used is not None and limit < _UNLIMITED:
                yield limit, used - _stat(level / "memory.stat").get("total_inactive_file", 0)


_UNLIMITED = 2**62
"""Version 1 writes about 2**63 for "no limit"."""


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
