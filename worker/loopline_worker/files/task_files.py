"""The files of one attempt: what it takes, brought in before it starts, and what it leaves, taken when it is over."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from loopline_shared.protocol.messages import Run
from loopline_worker.files.cache import Cache
from loopline_worker.files.outputs import Collected, Collector
from loopline_worker.files.staging import Inputs
from loopline_worker.state.spool import Spool


class TaskFiles:
    def __init__(self, inputs: Inputs, collector: Collector | None, store: Path) -> None:
        """``store``: where what it leaves waits to be sent; ``collector`` None: nobody wants anything."""
        self._inputs = inputs
        self._collector = collector
        self._store = store

    async def bring_in(self) -> None:
        """StagingError; OSError where this computer cannot."""
        await self._inputs.bring_in()

    async def collect(self) -> Collected:
        """OutputsError; OSError where this computer cannot."""
        if self._collector is None:
            return Collected()
        try:
            return await asyncio.to_thread(self._collector.collect, self._inputs.files)
        except Exception:
            await asyncio.to_thread(shutil.rmtree, self._store, ignore_errors=True)
            raise

    def give_up(self) -> None:
        """Nobody waits for what it leaves any more."""
        if self._collector:
            self._collector.is_unwanted = True

    async def take_back(self) -> None:
        """What it was lent, before its scratch folder goes. StagingError where it is not as it was."""
        await self._inputs.take_back()


class Shelf:
    """Where attempts have their files from, and where they leave them."""

    def __init__(self, cache: Cache, spool: Spool, scratch_limit_bytes: int | None, outputs_limit_bytes: int) -> None:
        self._cache = cache
        self._spool = spool
        self._scratch_limit_bytes = scratch_limit_bytes
        self._outputs_limit_bytes = outputs_limit_bytes

    def files_of(self, run: Run, folder: Path) -> TaskFiles:
        store = self._spool.files_folder(run.attempt)
        collector = Collector(folder, run.outputs, store, self._outputs_limit_bytes) if run.outputs else None
        return TaskFiles(Inputs(run, folder, self._cache, self._scratch_limit_bytes), collector, store)
