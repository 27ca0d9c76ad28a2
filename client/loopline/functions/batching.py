"""Batches of calls: calls that follow one another closely go together, one batch for each function."""

from __future__ import annotations

import asyncio
import threading
import time

from loopline.functions.futures import Batch, GridFuture

MANY_CALLS = 8
"""Calls that came while others were submitted count as many in a row from this number on."""
_LONGEST_S = 0.2


class CallBatcher:
    """Gathers calls from any thread, for the loop that submits them.

    ``pause_s``: of many calls in a row, those that follow one another so soon are one batch.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._lock = threading.RLock()  # the garbage collector may run code that calls, too
        self._batches: dict[bytes, Batch] = {}  # by the function's pickle
        self._is_awaited = False
        self._last_call = 0.0

    def add(self, function: bytes, call: bytes, future: GridFuture) -> bool:
        """Add a call. True if the caller has to start sending what is gathered, until ``pop`` finds nothing.

        Functions are the same if they have the same pickle. One that was changed since its last call has another.
        """
        with self._lock:
            batch = self._batches.setdefault(function, Batch(function))
            batch.calls.append(call)
            batch.futures.append(future)
            self._last_call = time.monotonic()
            was_awaited, self._is_awaited = self._is_awaited, True
        return not was_awaited

    def pop(self) -> list[Batch]:
        """Remove and return all that is gathered. If it is empty, the next caller has to start sending."""
        with self._lock:
            batches, self._batches = self._batches, {}
            self._is_awaited = bool(batches)
        return list(batches.values())

    def pop_alone(self) -> Batch | None:
        """Remove and return the only call that is gathered, and have the next caller start sending; else None."""
        with self._lock:
            batches = list(self._batches.values())
            if len(batches) != 1 or len(batches[0].calls) != 1:
                return None
            self._batches, self._is_awaited = {}, False
        return batches[0]

    async def pause(self) -> None:
        """Wait until no call has come for a moment, if many came while others were submitted."""
        if sum(len(batch.calls) for batch in self._batches.values()) < MANY_CALLS:
            return
        give_up = time.monotonic() + _LONGEST_S
        while (now := time.monotonic()) < min(give_up, self._last_call + self._pause_s):  # noqa: ASYNC110
            await asyncio.sleep(self._last_call + self._pause_s - now)
