"""Time of the event loop spent on reading long messages, and pauses imposed on their senders.

All other clients wait while a long frame or body is parsed. The time for a refused message is charged to its
sender: ``BURST_S`` are allowed at once, and ``SHARE`` of the loop's time after that. A sender that has used more is
read later. A link whose frames are accepted also pauses after each long frame, so that it takes at most a tenth of
the loop. Messages that take less than ``FREE_S`` cost nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from loopline_master.admission.buckets import Buckets
from loopline_master.timings import LONGEST_REST_S, REST_TURN_S
from loopline_shared.errors import ExceededLimit, LooplineError

FREE_S = 0.01
BURST_S = 0.2
BURST_MS = 200
SHARE = 0.02
LINK_RESTS = 9  # the pause of a link, in multiples of the time that its frame took


class BusyTime:
    """Time used by each sender: the id of a token, or the address of a client without one."""

    def __init__(self) -> None:
        self._left = Buckets(BURST_S, SHARE)

    @contextmanager
    def charged(self, sender: str) -> Iterator[None]:
        """Charge the sender for the time of this block if it raises, which means that it refuses the message."""
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            self.charge(sender, time.perf_counter() - begin)
            raise

    def charge(self, sender: str, seconds: float) -> None:
        """Charge the sender for a refused message."""
        if seconds > FREE_S:
            self._left.spend(sender, seconds - FREE_S)

    async def rest(self, sender: str) -> None:
        """Wait until the sender may be read again; its messages take turns.

        Raises LooplineError (429) if that would take too long.
        """
        if sender not in self._left.levels:  # almost always
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
    """Return how many seconds to stop reading a link after a frame that took ``reading_s``."""
    return max(0.0, reading_s - FREE_S) * LINK_RESTS
