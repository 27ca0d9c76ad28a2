"""Summing up: sums of large jobs are made regularly, so that questions about their history are answered at once."""

from __future__ import annotations

import asyncio

from loopline_master.store import Store
from loopline_master.timings import SUM_EVERY_S, SUM_PAUSE_S


class Summing:
    """Sums up what is over of large jobs, and has no sums yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self) -> None:
        """Sum up regularly, for ever: a piece at a time, with a pause in which others have their turn."""
        while True:
            was_one_due = await self._store.job_sums.sum_next()
            await asyncio.sleep(SUM_PAUSE_S if was_one_due else SUM_EVERY_S)
