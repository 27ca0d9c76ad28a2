"""A semaphore that lets waiting callers in by their stake, the highest first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class StakeQueue:
    """Lets ``at_once`` callers in at a time."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._number = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap; callers with one stake by arrival

    @asynccontextmanager
    async def turn(self, stake: float) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the context."""
        await self._acquire(stake)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, stake: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-stake, next(self._number), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted at the same time
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
