"""Time of the event loop that goes into reading long messages, and the rest that their senders take for it.

Everybody else waits while a long frame or body is read. What is refused is charged to its sender, who has ``SHARE``
of the loop's time for it, after a ``BURST_S``, and is read later if that was used up. A link whose frames are
accepted rests as well after each long one, so that it never has more than a tenth of the loop for its frames.
Messages that are read within ``FREE_S`` cost nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from loopline_master.buckets import Buckets
from loopline_master.timings import LONGEST_REST_S, REST_TURN_S
from loopline_shared.errors import ExceededLimit, LooplineError

FREE_S = 0.01
BURST_S = 0.2
BURST_MS = 200
SHARE = 0.02
LINK_RESTS = 9  # times as long as the reading of its frame took


class BusyTime:
    """Time used up by each sender: a token's id, or the address of one who needs no token."""

    def __init__(self) -> None:
        self._left = Buckets(BURST_S, SHARE)

    @contextmanager
    def charged(self, sender: str) -> Iterator[None]:
        """Charge the sender for the time of this block if it refuses, by an exception, what the sender sent."""
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            self.charge(sender, time.perf_counter() - begin)
            raise

    def charge(self, sender: str, reading_s: float) -> None:
        """Charge the sender for the time that it took to read what is refused."""
        if (extra_s := reading_s - FREE_S) > 0:
            self._left.spend(sender, extra_s)

    async def rest(self, sender: str) -> None:
        """Wait until the sender may be read again; several of its messages one after the other.

        Raises LooplineError (429) if that would take too long.
        """
        if sender not in self._left.levels:  # as almost always
            return
        owed_s = -self._left.level(sender) / SHARE
        if owed_s <= 0:
            return
        if owed_s > LONGEST_REST_S:
            message = "too much of what you sent was refused: reading it keeps others waiting"
            quota = ExceededLimit(
                BURST_MS, unit="milliseconds", window_s=round(BURST_S / SHARE), again_s=ceil(owed_s)
            )
            raise LooplineError(
                "too_much_refused", message, f"send it again in {owed_s:.0f} s", status=429, quota=quota
            )
        self._left.spend(sender, REST_TURN_S * SHARE)
        await asyncio.sleep(owed_s)


def rest_after(reading_s: float) -> float:
    """Return for how long a link is not read after a frame whose reading took so long; 0: it is read on at once."""
    return max(0.0, reading_s - FREE_S) * LINK_RESTS
