"""``max_workers`` of an executor: the most tasks of calls that it has on the grid at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress

from loopline.functions.futures import GridFuture


class CallLimit:
    """Places for tasks that are under way. It lives in the loop in which it is made.

    ``most``: number of places; None: no limit.
    """

    def __init__(self, most: int | None) -> None:
        self._free: float = math.inf if most is None else most
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def is_none(self) -> bool:
        """True if there is no limit."""
        return self._free == math.inf

    def hold(self, futures: Iterable[GridFuture]) -> None:
        """Note that these calls wait for places."""
        if self._free < math.inf:
            for future in futures:
                future.is_held = True

    async def acquire(self, wanted: int) -> int:
        """Wait until a place is free, acquire as many as are wanted, or as are free, and return how many."""
        while self._free < 1:
            self._freed.clear()
            await self._freed.wait()
        taken = int(min(wanted, self._free))
        self._free -= taken
        return taken

    def release_after(self, futures: Iterable[GridFuture]) -> None:
        """Release a place whenever one of these futures ends, in whichever thread."""
        if self._free < math.inf:
            for future in futures:
                future.is_held = False
                future.add_done_callback(self._ended)

    def lift(self) -> None:
        """Have no limit from now on: whoever waits goes on."""
        self._free = math.inf
        self._freed.set()

    def _ended(self, _: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._free += 1
        self._freed.set()
