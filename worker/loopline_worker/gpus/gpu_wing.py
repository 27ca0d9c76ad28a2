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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from loopline_shared.model import Outcome, Resource, WithheldGpu
from loopline_shared.protocol.gpus import GPU
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart
from loopline_worker.files.staging import StagingError
from loopline_worker.gpus.local_gpus import GpuMaker, LocalGpu, is_there

if TYPE_CHECKING:
    from loopline_shared.protocol.worker_link import Run
    from loopline_worker.core.machine_wing import DraftReport
    from loopline_worker.gpus.gpu_locks import GpuLocks
    from loopline_worker.launch.interface import Job

_LOCK_WITHIN_S = 10.0
"""Limit for the clean-up of the attempt that had the GPU before."""
_TRY_EVERY_S = 0.05
_TAKEN = "another worker of this computer has it"
_GONE = "it is out of service: the driver does not show it any more"


class Gpus(AgentWing):
    """The GPUs that this worker offers."""

    def __init__(self, gpus: Iterable[LocalGpu], locks: GpuLocks) -> None:
        self._gpus = {each.gpu.id: each for each in gpus}
        self._locks = locks

    @property
    def resource(self) -> Resource:
        """The GPUs as a fact of this worker."""
        return Resource(GPU, len(self._gpus), tuple(each.gpu for each in self._gpus.values()))

    def prepare(self, run: Run, job: Job) -> GpuPart | None:
        """Show a task its own GPUs only. Return None if it has no GPU."""
        own = [self._gpus[gpu] for gpu in run.gpus if gpu in self._gpus]
        job.environment.update(variables(own))
        if not run.gpus:
            return None
        job.gpus = run.gpus
        job.device_files = tuple(dict.fromkeys(file for each in own for file in each.files))
        job.makes_folder = False
        missing = [gpu for gpu in run.gpus if gpu not in self._gpus]
        return GpuPart(own, self._locks, f"this worker has no GPU {missing[0]}" if missing else "", self.obstacle)

    def obstacle(self, gpu: LocalGpu) -> str:
        """Return why a GPU is out of service; empty if it is not."""
        return "" if is_there(gpu) else _GONE

    def report(self, draft: DraftReport) -> None:
        """Say which GPUs are not offered now."""
        reasons = ((gpu, self._why_withheld(each)) for gpu, each in self._gpus.items())
        if withheld := tuple(WithheldGpu(gpu, reason) for gpu, reason in reasons if reason):
            draft.load = replace(draft.load, withheld_gpus=withheld)

    def close(self) -> None:
        """Release all GPUs."""
        self._locks.close()

    def _why_withheld(self, each: LocalGpu) -> str:
        return self.obstacle(each) or (_TAKEN if self._locks.is_taken(each.address) else "")


class GpuPart(AttemptPart):
    """An attempt's GPUs, locked from before its start until it is over."""

    prepares = True

    def __init__(
        self, gpus: Sequence[LocalGpu], locks: GpuLocks, obstacle: str, obstacle_of: Callable[[LocalGpu], str]
    ) -> None:
        """``obstacle``: why the attempt cannot have its GPUs; empty: nothing is known against it."""
        self._gpus, self._locks = gpus, locks
        self._obstacle, self._obstacle_of = obstacle, obstacle_of
        self._locked: list[str] = []

    async def prepare(self, job: Job) -> None:
        """Lock the GPUs. Raises StagingError, which gives the task back, if one is taken or out of service."""
        obstacles = (f"GPU {each.gpu.index}: {reason}" for each in self._gpus if (reason := self._obstacle_of(each)))
        if obstacle := self._obstacle or next(obstacles, ""):
            raise StagingError(Outcome.GIVEN_BACK, obstacle)
        for each in self._gpus:
            await self._lock(each)

    async def _lock(self, each: LocalGpu) -> None:
        tries_left = int(_LOCK_WITHIN_S / _TRY_EVERY_S)
        while not self._acquire(each):
            if not tries_left:
                raise StagingError(Outcome.GIVEN_BACK, f"GPU {each.gpu.index}: {_TAKEN}")
            tries_left -= 1
            await asyncio.sleep(_TRY_EVERY_S)
        self._locked.append(each.address)

    def _acquire(self, each: LocalGpu) -> bool:
        try:
            return self._locks.acquire(each.address)
        except OSError as error:
            raise StagingError(Outcome.GIVEN_BACK, f"cannot lock GPU {each.gpu.index}: {error}") from None

    def after_end(self) -> None:
        """Unlock the GPUs."""
        for address in self._locked:
            self._locks.release(address)


def variables(gpus: Sequence[LocalGpu]) -> dict[str, str]:
    """Return the variables of a task that has these GPUs."""
    visible = {maker: ",".join(each.visible_as for each in gpus if each.maker is maker) for maker in GpuMaker}
    return {
        "CUDA_VISIBLE_DEVICES": visible[GpuMaker.NVIDIA],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ROCR_VISIBLE_DEVICES": visible[GpuMaker.AMD],
        "LOOPLINE_GPUS": ",".join(each.gpu.id for each in gpus),
    }
