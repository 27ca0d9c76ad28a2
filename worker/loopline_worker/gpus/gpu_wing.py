"""The agent's wing for GPUs: it offers them, and sets up each attempt with the GPUs that the master chose.

Variables of a task on a worker that offers GPUs:

======================= =======================================================================
CUDA_VISIBLE_DEVICES    UUIDs of its GPUs; empty without any, as the next two are
ROCR_VISIBLE_DEVICES    the same for AMD's
LOOPLINE_GPUS           their ids, separated by commas
CUDA_DEVICE_ORDER       PCI_BUS_ID: programs count GPUs as nvidia-smi does
======================= =======================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_shared.model import Outcome, Resource, WithheldGpu
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.protocol.gpus import GPU
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.core.gpu_tasks import CheckedGpu, GpuTasks
from loopline_worker.files.staging import StagingError
from loopline_worker.gpus.amd_power import shows_power
from loopline_worker.gpus.driver_libraries import driver_libraries
from loopline_worker.gpus.gpu_energy import GpuEnergy
from loopline_worker.gpus.gpu_watch import GpuWatch
from loopline_worker.gpus.known_gpus import KnownGpus, with_details
from loopline_worker.gpus.local_gpus import ROOT, GpuMaker, LocalGpu, device_of

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId, Result
    from loopline_shared.protocol.worker_link import Run
    from loopline_worker.attempts.judge import Verdict
    from loopline_worker.core.machine_wing import DraftReport
    from loopline_worker.gpus.gpu_locks import GpuLocks
    from loopline_worker.gpus.nvml_reader import NvmlReader
    from loopline_worker.launch.interface import Ended, Job, Tree

_CHECKED_FOR_S = 1.0
"""A busy worker sends many Reports a second."""
_LOCK_WITHIN_S = 10.0
"""Limit for the clean-up of the attempt that had the GPU before."""
_TRY_EVERY_S = 0.05
_TAKEN = "another worker of this computer has it"


class Gpus(AgentWing):
    """The GPUs that this worker offers."""

    machine_wing = GpuTasks
    concerns = ("attempt",)  # all: none may see the GPUs of others
    is_awake = True

    def __init__(
        self,
        gpus: Iterable[LocalGpu],
        locks: GpuLocks,
        known: KnownGpus,
        *,
        is_dedicated: bool = False,
        has_walls: bool = False,
        reader: NvmlReader | None = None,
        root: Path = ROOT,
    ) -> None:
        self._gpus = {each.gpu.id: each for each in known.complete(gpus)}
        self._locks, self._known, self._has_walls = locks, known, has_walls
        self._libraries, self._root = driver_libraries(root), root
        self._parts: dict[AttemptId, GpuPart] = {}
        self._withheld: tuple[WithheldGpu, ...] = ()  # as last checked ...
        self._checked_at = -inf  # ... and when
        self._energy = {gpu: GpuEnergy() for gpu in self._gpus}
        self.joules = 0.0  # of all tasks, above idle
        self.watch = GpuWatch(
            lambda: [*self._gpus.values()], self._tasks, is_dedicated=is_dedicated, reader=reader, root=root
        )

    @property
    def resource(self) -> Resource:
        """The GPUs as a fact of this worker."""
        return Resource(GPU, len(self._gpus), tuple(each.gpu for each in self._gpus.values()))

    @property
    def counts_energy(self) -> bool:
        """True if the energy of a GPU may be known: NVIDIA's have a counter from Volta on, AMD's show their power."""
        return any(each.maker is GpuMaker.NVIDIA or self._shows_power(each) for each in self._gpus.values())

    def _shows_power(self, each: LocalGpu) -> bool:
        return not each.integrated and shows_power(device_of(each, self._root))

    def prepare(self, run: Run, job: Job) -> GpuPart | None:
        """Show a task its own GPUs only. Return None if it has no GPU."""
        own = [self._gpus[gpu] for gpu in run.gpus if gpu in self._gpus]
        job.environment.update(variables(own, has_walls=self._has_walls))
        if not run.gpus:
            return None
        job.gpus = run.gpus
        job.device_files = tuple(dict.fromkeys(file for each in own for file in each.files))
        if any(each.maker is GpuMaker.NVIDIA for each in own):
            job.libraries = self._libraries
        job.makes_folder = False
        missing = [gpu for gpu in run.gpus if gpu not in self._gpus]
        obstacle = f"this worker has no GPU {missing[0]}" if missing else ""
        part = GpuPart(
            own, self._locks, self.watch, obstacle,
            on_news=self._check, on_end=lambda: self._parts.pop(run.attempt, None),
        )  # fmt: skip
        self._parts[run.attempt] = part
        return part

    def report(self, draft: DraftReport) -> None:
        """Say which GPUs are not offered now."""
        if time.monotonic() - self._checked_at > _CHECKED_FOR_S:
            self._check()
        if self._withheld:
            draft.load = replace(draft.load, withheld_gpus=self._withheld)

    def close(self) -> None:
        """Release all GPUs."""
        self._locks.close()

    def on_reading(self) -> None:
        """Apply the last readings: preempt tasks, and report changes."""
        for attempt, part in list(self._parts.items()):
            reasons = (f"GPU {each.gpu.index}: {why}" for each in part.gpus if (why := self.watch.must_leave(each)))
            frozen_s = min(self.watch.frozen_s(each) for each in part.gpus) if part.gpus else inf
            self.agent.post(CheckedGpu(attempt, next(reasons, ""), frozen_s))
        self._learn()
        self._charge()
        if self._check():
            self.agent.speak()

    def _charge(self) -> None:
        """Charge tasks for the energy of their GPUs since the last reading. Tasks that share one get equal parts."""
        for gpu, energy in self._energy.items():
            reading = self.watch.readings.get(gpu)
            if reading is None or reading.joules is None:
                continue
            joules = energy.since_last(self.watch.read_at[gpu], reading.joules)
            parts = [part for part in self._parts.values() if any(each.gpu.id == gpu for each in part.gpus)]
            for part in parts:
                part.joules += joules / len(parts)
                self.joules += joules / len(parts)

    def _learn(self) -> None:
        """Report memory and compute capability of GPUs once they are known."""
        known = {
            gpu: with_details(each, reading.memory_bytes, reading.capability)
            for gpu, each in self._gpus.items()
            if (reading := self.watch.readings.get(gpu))
        }
        if any(each is not self._gpus[gpu] for gpu, each in known.items()):
            self._gpus |= known
            self._known.keep(self._gpus.values())
            self.agent.offer(self.resource)

    def _tasks(self) -> Mapping[str, Sequence[int]]:
        tasks = dict[str, list[int]]()
        for part in self._parts.values():
            for each in part.gpus:
                tasks.setdefault(each.gpu.id, []).extend(part.processes())
        return tasks

    def _check(self) -> bool:
        """Check which GPUs are offered. True if that has changed."""
        before, self._checked_at = self._withheld, time.monotonic()
        reasons = ((gpu, self._why_withheld(each)) for gpu, each in self._gpus.items())
        self._withheld = tuple(WithheldGpu(gpu, reason) for gpu, reason in reasons if reason)
        return self._withheld != before

    def _why_withheld(self, each: LocalGpu) -> str:
        return self.watch.withheld(each) or (_TAKEN if self._locks.is_taken(each.place) else "")


class GpuPart(AttemptPart):
    """An attempt's GPUs, locked from before its start until it is over."""

    prepares = True

    def __init__(
        self,
        gpus: Sequence[LocalGpu],
        locks: GpuLocks,
        watch: GpuWatch,
        obstacle: str,
        *,
        on_news: Callable[[], object],
        on_end: Callable[[], object],
    ) -> None:
        """``obstacle``: why the attempt cannot have its GPUs; empty: nothing is known against it."""
        self.gpus = gpus
        self._locks, self._watch, self._obstacle = locks, watch, obstacle
        self._on_news, self._on_end = on_news, on_end
        self._locked: list[str] = []
        self.joules = 0.0  # above idle, as far as its GPUs were read
        self._tree: Tree | None = None

    def processes(self) -> Sequence[int]:
        """Return the task's processes."""
        return self._tree.measure().pids if self._tree and not self._tree.has_ended else ()

    def started(self, tree: Tree) -> None:
        """Take the task's processes."""
        self._tree = tree

    async def on_end(self, ended: Ended, verdict: Verdict) -> Verdict:
        """Give a failed task back if one of its GPUs has failed, because this may be why."""
        if verdict[0] is not Outcome.FAILED:
            return verdict
        await self._watch.read(self.gpus)  # others' tasks may share one
        self._on_news()
        failure = self._broken()
        return (Outcome.GIVEN_BACK, failure) if failure else verdict

    def _broken(self) -> str:
        return next((f"GPU {each.gpu.index}: {why}" for each in self.gpus if (why := self._watch.broken(each))), "")

    async def prepare(self, job: Job) -> None:
        """Lock the GPUs. Raises StagingError, which gives the task back, if one is taken or out of service."""
        if obstacle := self._obstacle or self._broken():
            raise self._refusal(obstacle)
        for each in self.gpus:
            await self._lock(each)

    async def _lock(self, each: LocalGpu) -> None:
        tries_left = int(_LOCK_WITHIN_S / _TRY_EVERY_S)
        while not self._acquire(each):
            if not tries_left:
                raise self._refusal(f"GPU {each.gpu.index}: {_TAKEN}")
            tries_left -= 1
            await asyncio.sleep(_TRY_EVERY_S)
        self._locked.append(each.place)

    def _acquire(self, each: LocalGpu) -> bool:
        try:
            return self._locks.acquire(each.place, each.gpu.shares)
        except OSError as error:
            raise self._refusal(f"cannot lock GPU {each.gpu.index}: {error}") from None

    def _refusal(self, reason: str) -> StagingError:
        """Return the refusal; the Report with it says that the GPU is not offered."""
        self._on_news()
        return StagingError(Outcome.GIVEN_BACK, reason)

    def complete(self, result: Result) -> Result:
        """Add the energy of the GPUs."""
        if not self.joules:
            return result
        return replace(result, joules={**(result.joules or {}), EnergySource.GPU: round(self.joules, 3)})

    def after_end(self) -> None:
        """Unlock the GPUs."""
        for place in self._locked:
            self._locks.release(place)
        self._on_end()


def variables(gpus: Sequence[LocalGpu], *, has_walls: bool) -> dict[str, str]:
    """Return the variables of a task that has these GPUs. ``has_walls``: it can open no others."""
    visible = {
        maker: _visible([each.visible_as for each in gpus if each.maker is maker], has_walls) for maker in GpuMaker
    }
    return {
        "CUDA_VISIBLE_DEVICES": visible[GpuMaker.NVIDIA],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ROCR_VISIBLE_DEVICES": visible[GpuMaker.AMD],
        "LOOPLINE_GPUS": ",".join(each.gpu.id for each in gpus),
    }


def _visible(names: Sequence[str], has_walls: bool) -> str:
    """Return the value for GPUs with these names. Libraries count only GPUs that they can open."""
    is_counted = has_walls and any(map(str.isdigit, names))
    return ",".join(map(str, range(len(names))) if is_counted else names)
