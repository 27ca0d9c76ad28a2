"""Cache of answers that many viewers request at the same time.

A viewer names the last change of the grid that it has seen (``SEEN``, an id of the stream of changes). It gets a
cached answer only if that was made after this change, so no answer is older than the viewer's last change, and fifty
open pages cost the master little more than one.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from loopline_master.change_feed import ChangeFeed
from loopline_master.http.answers import Encoded

SEEN = "X-Loopline-Seen"
MOST_KEPT = 64
OLDEST_S = 2.0
"""Maximum age of a cached answer, because some depend on the clock too."""


@dataclass(slots=True)
class _Kept:
    mark: str  # of the change feed when the answer was begun
    at: float
    made: asyncio.Task[Encoded]


class SharedAnswers:
    """Keeps the latest answers by address. Use it only for answers that are the same for all permitted callers."""

    def __init__(self, changes: ChangeFeed) -> None:
        self._changes = changes
        self._kept = OrderedDict[str, _Kept]()

    async def give(self, request: web.Request, make: Callable[[], Awaitable[Encoded]]) -> Encoded:
        """Return the answer to a request: the cached one if it is new enough, else a new one."""
        seen = request.headers.get(SEEN)
        if not seen:
            return await make()
        key = request.path_qs
        kept = self._kept.get(key)
        if kept is None or not self._is_new_enough(kept, seen):
            kept = self._kept[key] = _Kept(self._changes.mark, time.monotonic(), asyncio.ensure_future(_made(make)))
            kept.made.add_done_callback(lambda made: made.cancelled() or made.exception())  # fetch its error
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return await asyncio.shield(kept.made)

    def _is_new_enough(self, kept: _Kept, seen: str) -> bool:
        if time.monotonic() - kept.at > OLDEST_S or (kept.made.done() and kept.made.exception()):
            return False
        return self._changes.is_after(kept.mark, seen)


async def _made(make: Callable[[], Awaitable[Encoded]]) -> Encoded:
    return await make()
