"""The files of one attempt: inputs are staged before it starts, and outputs collected when it has ended."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from loopline_shared.paths import CHECKPOINT, TEMPORARY
from loopline_shared.protocol.worker_link import Run
from loopline_worker.files.cache import Cache
from loopline_worker.files.outputs import Collected, Collector
from loopline_worker.files.staging import Inputs
from loopline_worker.state.journal import Spool


class TaskFiles:
    """Inputs and outputs of one attempt. Outputs wait in ``store`` to be sent; without a collector there are none."""

    def __init__(self, inputs: Inputs, collector: Collector | None, store: Path) -> None:
        self._inputs = inputs
        self._collector = collector
        self._store = store

    async def stage(self) -> None:
        """Stage the inputs. Raises StagingError, or OSError if this computer cannot."""
        await self._inputs.stage()

    async def collect(self) -> Collected:
        """Collect the outputs. Raises OutputsError, or OSError if this computer cannot."""
        if self._collector is None:
            return Collected()
        try:
            return await asyncio.to_thread(self._collector.collect, self._inputs.files)
        except Exception:
            await asyncio.to_thread(shutil.rmtree, self._store, ignore_errors=True)
            raise

    def give_up(self) -> None:
        """Stop collecting, because no task waits for the outputs."""
        if self._collector:
            self._collector.is_unwanted = True

    async def detach(self) -> None:
        """Detach hard-linked inputs before the scratch folder goes. Raises StagingError if a task changed one."""
        await self._inputs.detach()


class AttemptFiles:
    """Makes the ``TaskFiles`` of each attempt: inputs come from the cache, outputs go to the spool."""

    def __init__(self, cache: Cache, spool: Spool, scratch_limit_bytes: int | None, outputs_limit_bytes: int) -> None:
        self._cache = cache
        self._spool = spool
        self._scratch_limit_bytes = scratch_limit_bytes
        self._outputs_limit_bytes = outputs_limit_bytes

    def files_of(self, run: Run, folder: Path) -> TaskFiles:
        """Return the files of one attempt."""
        store = self._spool.files_folder(run.attempt)
        collector = None
        if run.outputs or run.optional_outputs:
            collector = Collector(
                folder,
                run.outputs,
                store,
                self._outputs_limit_bytes,
                optional=run.optional_outputs,
                parameters=run.parameters,
                excluded=(TEMPORARY, CHECKPOINT) if run.checkpoint else (TEMPORARY,),
            )
        return TaskFiles(Inputs(run, folder, self._cache, self._scratch_limit_bytes), collector, store)
