"""The bound of the event log: notes checkpoints while the master runs, and forgets what is older than it is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NoReturn

from loopline_master.engine import Engine
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.store import Store
from loopline_master.store.checkpoint import CHECKPOINTS
from loopline_master.timings import FORGET_PAUSE_S, LOG_LOOK_EVERY_S

log = logging.getLogger(__name__)


class LogBound:
    """Keeps the log within ``keep_s``, and the eighth of it that lies between two checkpoints."""

    def __init__(self, engine: Engine, store: Store, keep_s: float, now: RemovalClock) -> None:
        self._engine, self._store, self._keep_s, self._now = engine, store, keep_s, now

    async def run(self) -> NoReturn:
        """Look at the log now, and then from time to time."""
        while True:
            await self.look()
            await asyncio.sleep(min(LOG_LOOK_EVERY_S, self._keep_s / CHECKPOINTS))

    async def look(self) -> None:
        """Note a checkpoint if one is due, and forget what is too old: a little at a time, so that nobody waits."""
        if await self._store.is_checkpoint_due(self._keep_s, time.time()):
            await self._engine.checkpoint()
        gone = 0
        while went := await self._store.forget_log(self._keep_s, self._now()):
            gone += went
            await asyncio.sleep(FORGET_PAUSE_S)
        if gone:
            days = self._keep_s / 86400.0
            log.info("%d entries of the event log are forgotten: it is kept for %g days", gone, days)
