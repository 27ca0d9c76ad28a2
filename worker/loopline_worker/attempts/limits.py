"""Limits of a task on this computer, and the messages for exceeding them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline_worker.supervisor.orders import Breach as Breach

if TYPE_CHECKING:
    from loopline_shared.model import Facts
    from loopline_worker.settings import WorkerSettings

_LARGEST_SHARE = 0.75
"""Share of the memory for tasks whose jobs request none: the rest is the owner's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an attempt; None: unlimited."""

    memory_bytes: int | None = None
    processes: int | None = None  # threads included where the kernel counts them
    scratch_bytes: int | None = None
    output_bytes: int | None = None  # written to stdout or stderr, kept or not
    cores: int | None = None  # kept on Windows only: elsewhere tasks yield
    asks_for_memory: bool = False  # its job does
    value_bytes: int | None = None  # what a function returns; of more only the beginning is kept

    def words(self, breach: Breach) -> str:
        """Return why the task is stopped, naming the limit and where it is set."""
        if breach is Breach.MEMORY:
            whose = "requires.memory_bytes of its job"
            if not self.asks_for_memory:
                whose = "this worker's limit for a task whose job does not say requires.memory_bytes"
            return f"stopped: more than {_size(self.memory_bytes)} of memory ({whose})"
        if breach is Breach.PROCESSES:
            return (
                f"stopped: {self.processes} processes and threads, and asking for more (max_processes of this worker)"
            )
        if breach is Breach.SCRATCH:
            return f"stopped: more than {_size(self.scratch_bytes)} on disk (scratch_limit_bytes of this worker)"
        return f"stopped: more than {_size(self.output_bytes)} of output (output_flood_bytes of this worker)"


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota that this computer allows each attempt."""

    memory_bytes: int | None = None  # of the whole computer
    slots: int = 1
    task_memory_bytes: int | None = None  # of a task whose job asks for none; None: its slots' share
    processes: int | None = None
    scratch_bytes: int | None = None
    output_bytes: int | None = None
    value_bytes: int | None = None

    def limits(self, memory_bytes: int | None, slots: int) -> Limits:
        """Return the limits of an attempt that requests so much memory and so many slots."""
        return Limits(
            memory_bytes or self.task_memory_bytes or self._share(slots),
            self.processes,
            self.scratch_bytes,
            self.output_bytes,
            cores=slots,
            asks_for_memory=bool(memory_bytes),
            value_bytes=self.value_bytes,
        )

    def _share(self, slots: int) -> int | None:
        if self.memory_bytes is None:
            return None
        return int(self.memory_bytes * _LARGEST_SHARE * min(1.0, slots / self.slots))


def quota_of(settings: WorkerSettings, facts: Facts) -> Quota:
    """Return the quota that the settings ask for."""
    return Quota(
        facts.memory_bytes,
        facts.slots,
        task_memory_bytes=settings.task_memory_bytes,
        processes=settings.max_processes,
        scratch_bytes=settings.scratch_limit_bytes,
        output_bytes=settings.output_flood_bytes,
        value_bytes=settings.outputs_limit_bytes,
    )


def _size(limit_bytes: int | None) -> str:
    size, unit = float(limit_bytes or 0), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"
