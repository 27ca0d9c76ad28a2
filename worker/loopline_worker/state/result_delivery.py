"""Delivery of results that need work before they are sent: to the disk, and their files to the master."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from loopline_shared.model import Phases, Result
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.attempts import names_files
from loopline_worker.core.events import Delivered, Event
from loopline_worker.core.instructions import Entry
from loopline_worker.files.uploads import Uploads
from loopline_worker.state.journal import Journal, Spool
from loopline_worker.task_group import TaskGroup

_RETRY_S = 2.0


class ResultDelivery:
    """Posts Delivered for each result once it is on disk and the master has every file that it names."""

    def __init__(
        self,
        journal: Journal,
        spool: Spool,
        uploads: Uploads,
        task_group: TaskGroup,
        post: Callable[[Event], None],
        wings: Sequence[AgentWing] = (),
    ) -> None:
        self._journal = journal
        self._spool = spool
        self._uploads = uploads
        self._task_group = task_group
        self._post = post
        self._wings = wings
        self._under_way: set[asyncio.Task[None]] = set()

    def deliver(self, result: Result) -> None:
        """Start delivering a result, or continue the delivery of an earlier agent."""
        task = self._task_group.start(self._deliver(result))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def stop(self) -> None:
        """End what is under way: those results are of another life of the master's database."""
        for task in self._under_way:
            task.cancel()

    async def _deliver(self, result: Result) -> None:
        await self._store(result)
        if names_files(result):
            since = time.monotonic()
            files, value_file = self._spool.output_files(result.attempt), self._spool.value_file(result.attempt)
            folder = self._spool.files_folder(result.attempt)
            result = await self._uploads.deliver(result, files, value_file, folder)
            for wing in self._wings:
                if wing.is_awake:
                    wing.after_delivery(result, folder)
            result = _timed(result, time.monotonic() - since)
            await self._store(result)
        self._post(Delivered(result))

    async def _store(self, result: Result) -> None:
        """Wait until the disk has taken it."""
        while not self._journal.has(result):
            try:
                self._journal.write(Entry([result]))
            except OSError:
                await asyncio.sleep(_RETRY_S)
        self._spool.keep(result)


def _timed(result: Result, delivery_s: float) -> Result:
    """Return a result with the time that its delivery took, which follows what it took to collect its outputs."""
    phases = result.phases or Phases(0.0, 0.0, result.wall_s)
    collected_s = phases.delivered_s or phases.ended_s
    return replace(result, phases=replace(phases, delivered_s=collected_s + delivery_s))
