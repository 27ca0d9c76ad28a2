"""The watch over this worker's GPUs: does the owner use one, and does each work?

Compositors and browsers always have GPUs open, so use means load by a process that is no task. NVIDIA's GPUs are
read by NVML, and only while they are awake and some program has them open: opening an unused GPU takes seconds, and
keeps it awake. AMD's driver gives the load of a whole GPU; it is read while no task has the GPU. Its power is read
whenever the GPU is awake.

If the load by other programs cannot be measured while a program has the GPU open, the GPU counts as in use, unless
``gpu = dedicated`` is set.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import psutil

from loopline_worker.gpus.amd_power import AmdEnergy
from loopline_worker.gpus.local_gpus import ROOT, GpuMaker, LocalGpu, device_of, is_awake, is_there
from loopline_worker.gpus.nvml_reader import GpuReading, NvmlReader
from loopline_worker.host.computer import is_contained

log = logging.getLogger(__name__)

WATCH_EVERY_S = 10.0
RETRY_EVERY_S = 300.0
"""Time between readings of a GPU that is out of service and that no program has open."""
_LEAST_USE_PERCENT = 10.0
"""Compositors stay below, most of the time."""
_QUIET_S = 60.0
"""A GPU is offered again after this time without use."""
_READINGS_TO_PREEMPT = 2
"""A single burst does not end a task."""
GONE = "the driver does not show it any more"
UNMEASURED = "its use cannot be measured: set gpu = dedicated if no other program needs it"
IN_USE = "another program uses it"
_ALL = 0
"""Stands for all processes in a reading."""
_FROZEN_S = 60.0
_LEAST_FREE = 1 / 4
"""Part of a GPU's memory that must be free for its owner, so that a frozen task may stay for ``_FROZEN_S``."""
NOT_READ_YET = "its use is not known yet"

Tasks = Callable[[], Mapping[str, Iterable[int]]]
"""Returns the GPUs that tasks have, by id, with the processes of these tasks."""


class GpuWatch:
    """Knows why GPUs are not offered."""

    def __init__(
        self,
        gpus: Callable[[], Sequence[LocalGpu]],
        tasks: Tasks,
        *,
        is_dedicated: bool,
        reader: NvmlReader | None = None,
        root: Path = ROOT,
    ) -> None:
        self._gpus, self._tasks = gpus, tasks
        self._is_dedicated = is_dedicated
        self._reader, self._root = reader or NvmlReader(), root
        self._is_contained = is_contained(root)  # processes outside have other numbers here, if any
        self._broken: dict[str, str] = {}  # out of service, by id: why
        self._busy: dict[str, str] = {}  # used by others, or perhaps
        self._busy_readings: dict[str, int] = {}  # in a row
        self._quiet_since: dict[str, float] = {}
        self.read_at: dict[str, float] = {}  # by id
        self.readings: dict[str, GpuReading] = {}  # the last ones, by id
        self._energy: dict[str, AmdEnergy] = {}  # by id
        if not is_dedicated:
            nvidia = (each.gpu.id for each in gpus() if each.maker is GpuMaker.NVIDIA)
            self._busy = dict.fromkeys(nvidia, NOT_READ_YET) if self._is_open() else {}

    def broken(self, gpu: LocalGpu) -> str:
        """Return why a GPU is out of service; empty if it works."""
        return self._broken.get(gpu.gpu.id) or ("" if is_there(gpu) else f"out of service: {GONE}")

    def withheld(self, gpu: LocalGpu) -> str:
        """Return why a GPU is not offered; empty if it is."""
        return self.broken(gpu) or self._busy.get(gpu.gpu.id, "")

    def must_leave(self, gpu: LocalGpu) -> str:
        """Return why a task must leave a GPU; empty if it need not."""
        if self._busy_readings.get(gpu.gpu.id, 0) >= _READINGS_TO_PREEMPT:
            return self.broken(gpu) or self._busy.get(gpu.gpu.id, "")
        return self.broken(gpu)

    def frozen_s(self, gpu: LocalGpu) -> float:
        """Return how long a task may stay on a GPU while it is frozen, in seconds."""
        if self._is_dedicated:
            return math.inf
        reading = self.readings.get(gpu.gpu.id, GpuReading())
        return 0.0 if reading.free_bytes < _LEAST_FREE * reading.memory_bytes else _FROZEN_S

    async def keep(self, on_change: Callable[[], None]) -> NoReturn:
        """Watch from now on. ``on_change`` is called after each reading."""
        while True:
            await self.look()
            on_change()
            await asyncio.sleep(WATCH_EVERY_S)

    async def look(self) -> None:
        """Read the GPUs that may be read now."""
        tasks, now = self._tasks(), time.monotonic()
        to_read = [each for each in self._gpus() if self._may_read(each, tasks, now)]
        for each in self._gpus():
            if each not in to_read:
                self._note_use(each, is_used=False, now=now)
        await self.read(to_read)
        for each in to_read:
            self._note_uses(each, tasks.get(each.gpu.id), time.monotonic())
        for each in self._gpus():
            has_power = each.maker is GpuMaker.AMD and not each.integrated
            if has_power and is_there(each) and is_awake(each, self._root):
                self._note_power(each, time.monotonic())

    async def read(self, gpus: Sequence[LocalGpu]) -> None:
        """Read whether these GPUs work, asleep or not."""
        nvidia = {each.place: each for each in gpus if each.maker is GpuMaker.NVIDIA}
        readings = await self._reader.read(list(nvidia), WATCH_EVERY_S) if nvidia else {}
        for each in gpus:
            reading = readings.get(each.place) or self._read_amd(each)
            self._note(each, reading)

    def _may_read(self, each: LocalGpu, tasks: Mapping[str, Iterable[int]], now: float) -> bool:
        name = each.gpu.id
        if not is_there(each) or not is_awake(each, self._root):
            return False
        if each.maker is GpuMaker.AMD:
            return name not in tasks and not self._is_dedicated
        is_due = name in self._broken and now - self.read_at.get(name, now) >= RETRY_EVERY_S
        return name in tasks or self._is_open() or is_due

    def _is_open(self) -> bool:
        """True if a program has a device file of NVIDIA's driver open: each adds to the driver's count of uses.

        So do other modules of the driver, once each.
        """
        module = self._root / "sys/module/nvidia"
        try:
            return int((module / "refcnt").read_text()) > len([*(module / "holders").iterdir()])
        except (OSError, ValueError):
            return True

    def _read_amd(self, each: LocalGpu) -> GpuReading:
        with suppress(OSError, ValueError):
            return GpuReading(uses={_ALL: float((device_of(each, self._root) / "gpu_busy_percent").read_text())})
        return GpuReading()

    def _note_power(self, each: LocalGpu, now: float) -> None:
        name = each.gpu.id
        joules = self._energy.setdefault(name, AmdEnergy()).joules(now, device_of(each, self._root))
        self.readings[name] = replace(self.readings.get(name, GpuReading()), joules=joules)
        self.read_at[name] = now

    def _note(self, each: LocalGpu, reading: GpuReading) -> None:
        name = each.gpu.id
        self.readings[name], self.read_at[name] = reading, time.monotonic()
        before = self._broken.get(name, "")
        if not reading.trouble:
            self._broken.pop(name, None)
        elif reading.trouble not in before:
            self._broken[name] = f"out of service: {reading.trouble}"
            log.warning("GPU %d, %s, is %s", each.gpu.index, each.gpu.model, self._broken[name])
        if before and not reading.trouble:
            log.info("GPU %d, %s, is in service again", each.gpu.index, each.gpu.model)

    def _note_uses(self, each: LocalGpu, own: Iterable[int] | None, now: float) -> None:
        """Apply the uses in the last reading.

        ``own``: processes of the tasks that have the GPU; None: no task has it.
        """
        name, reading = each.gpu.id, self.readings[each.gpu.id]
        if self._is_dedicated or reading.trouble:
            self._note_use(each, is_used=False, now=now)
        elif reading.uses is None or self._is_contained:
            if own is None:
                self._busy[name] = UNMEASURED
        else:
            others = (percent for pid, percent in reading.uses.items() if pid not in (own or ()) and _lives(pid))
            self._note_use(each, is_used=sum(others) >= _LEAST_USE_PERCENT, now=now)

    def _note_use(self, each: LocalGpu, *, is_used: bool, now: float) -> None:
        name = each.gpu.id
        if is_used:
            self._busy[name] = IN_USE
            self._busy_readings[name] = self._busy_readings.get(name, 0) + 1
            self._quiet_since.pop(name, None)
            return
        self._busy_readings.pop(name, None)
        quiet_since = self._quiet_since.setdefault(name, now)
        if self._busy.get(name) != IN_USE or now - quiet_since >= _QUIET_S:
            self._busy.pop(name, None)


def _lives(pid: int) -> bool:
    """False for a process that has ended, such as a task's: the driver measures over a few seconds."""
    return pid == _ALL or psutil.pid_exists(pid)
