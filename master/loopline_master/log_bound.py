"""The bound of the event log: writes snapshots while the master runs, and deletes entries that are too old."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NoReturn

from loopline_master.engine import Engine
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.store import Store
from loopline_master.store.log_snapshots import SNAPSHOTS
from loopline_master.timings import FORGET_PAUSE_S, LOG_LOOK_EVERY_S

log = logging.getLogger(__name__)


class LogBound:
    """Keeps the log within ``keep_s``, and the eighth of it that lies between two snapshots."""

    def __init__(self, engine: Engine, store: Store, keep_s: float, now: RemovalClock) -> None:
        self._engine, self._store, self._keep_s, self._now = engine, store, keep_s, now

    async def run(self) -> NoReturn:
        """Look at the log now, and then from time to time."""
        while True:
            await self.look()
            await asyncio.sleep(min(LOG_LOOK_EVERY_S, self._keep_s / SNAPSHOTS))

    async def look(self) -> None:
        """Write a snapshot if one is due. Delete entries that are too old, a few at a time to keep commits short."""
        if await self._store.is_snapshot_due(self._keep_s, time.time()):
            await self._engine.write_snapshot()
        gone = 0
        while went := await self._store.forget_log(self._keep_s, self._now()):
            gone += went
            await asyncio.sleep(FORGET_PAUSE_S)
        if gone:
            days = self._keep_s / 86400.0
            log.info("%d entries of the event log are forgotten: it is kept for %g days", gone, days)
