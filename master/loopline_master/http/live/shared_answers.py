"""Answers that many viewers ask for at the same time, made once for all of them.

A viewer says which change of the grid it has heard of last (``SEEN``, an id of the stream of changes). It is given a
kept answer only if that was made after this change: so nobody sees less than they were told of, and fifty pages that
show the same cost the master little more than one.
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
"""Some answers follow the clock, too: none is given out for longer."""


@dataclass(slots=True)
class _Kept:
    mark: str  # of the change feed, as its making began
    at: float
    made: asyncio.Task[Encoded]


class SharedAnswers:
    """Keeps the latest answers by address; only those that are the same for all who may ask."""

    def __init__(self, changes: ChangeFeed) -> None:
        self._changes = changes
        self._kept = OrderedDict[str, _Kept]()

    async def give(self, request: web.Request, make: Callable[[], Awaitable[Encoded]]) -> Encoded:
        """Return the answer to a request: one that is kept, if it is new enough, else a new one."""
        seen = request.headers.get(SEEN)
        if not seen:
            return await make()
        key = request.path_qs
        kept = self._kept.get(key)
        if kept is None or not self._is_new_enough(kept, seen):
            kept = self._kept[key] = _Kept(self._changes.mark, time.monotonic(), asyncio.ensure_future(_made(make)))
            kept.made.add_done_callback(lambda made: made.cancelled() or made.exception())  # it may be nobody's
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
