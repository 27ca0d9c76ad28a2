"""Turns of uploads of checkpoints: within ``checkpoint_bytes_s`` together, the most work at stake per byte first.

A worker asks by HEAD before it sends a piece, and is answered when the piece has its turn. Granted pieces that have
not arrived count too, so that a slow network gets no more at once than it carries. Other files, results among them,
need no turn.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count

_AHEAD_S = 0.5
"""Most bytes on their way, in seconds of the budget: a Report may wait behind them."""
_ARRIVES_WITHIN_S = 60.0
"""A granted piece that has not arrived by then does not count any more."""
_Waiting = tuple[float, int, str, int, asyncio.Future[None]]


class UploadTurns:
    """Grants turns."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._waiting: list[_Waiting] = []  # a heap: the most at stake first, then by arrival
        self._number = count()
        self._free_at = 0.0
        self._under_way: dict[str, tuple[int, float]] = {}  # by name: size in bytes, and when it ceases to count
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, name: str, size_bytes: int, stake: float) -> None:
        """Wait for the turn of a piece. ``stake``: seconds of work that would be lost, for each byte to be sent."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-stake, next(self._number), name, size_bytes, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting = [one for one in self._waiting if one[-1] is not turn]
            heapq.heapify(self._waiting)
            raise

    def arrived(self, name: str) -> None:
        """Note that an upload has ended."""
        if self._under_way.pop(name, None):
            self._grant()

    def _grant(self) -> None:
        """Grant turns for as long as the budget allows, and set the timer for the next one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            now = time.monotonic()
            _, _, name, size_bytes, turn = self._waiting[0]
            if (wait_s := self._wait_s(now, size_bytes)) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._grant)
                return
            heapq.heappop(self._waiting)
            if not turn.done():  # else its worker is leaving
                self._free_at = max(now, self._free_at) + size_bytes / self._bytes_s
                self._under_way[name] = size_bytes, now + _ARRIVES_WITHIN_S
                turn.set_result(None)

    def _wait_s(self, now: float, size_bytes: int) -> float:
        """Return seconds until a piece of this size may be sent, unless an upload ends before."""
        if now < self._free_at:
            return self._free_at - now
        self._under_way = {name: one for name, one in self._under_way.items() if one[1] > now}
        ahead_bytes = sum(size for size, _ in self._under_way.values())
        if not ahead_bytes or ahead_bytes + size_bytes <= _AHEAD_S * self._bytes_s:
            return 0.0
        return min(until for _, until in self._under_way.values()) - now
