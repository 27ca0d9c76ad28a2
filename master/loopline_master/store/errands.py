"""Errands: work that threads do beside the event loop, with as little ado as there can be between them.

A commit is such an errand, and its caller waits for it. A pool of the standard library with its two kinds of futures
takes four times as many calls, and another round of the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

Work = TypeVar("Work")


class Errand(asyncio.Future[Any]):
    """Future of the work's result. The waiting task resumes within the call that sets it.

    What a future calls by itself is called a round of the loop later; so it is here, if the wait is cancelled.
    """

    _waiter: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, call: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        """Have this called, which is the wait of a task."""
        self._waiter = call, context or copy_context()
        super().add_done_callback(call, context=context)

    def bring(self, result: Any, error: BaseException | None) -> None:
        """Set a result or an error, in the loop's own thread. The waiting task may be gone."""
        if self.done():
            return
        waiter = self._waiter
        if waiter:
            self.remove_done_callback(waiter[0])
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)
        if waiter:
            call, context = waiter
            context.run(call, self)


class Errands(Generic[Work]):
    """Threads that run errands in the order of submission; all of them run, even if no task waits.

    ``under_way``: number of errands without a result yet.
    """

    def __init__(self, do: Callable[[Work], Any], most: int) -> None:
        """``do`` does the work, in at most ``most`` threads, which start on demand."""
        self.under_way = 0
        self._do, self._most, self._loop = do, most, asyncio.get_running_loop()
        self._threads = list[threading.Thread]()
        self._given: SimpleQueue[tuple[Work, Errand] | None] = SimpleQueue()

    def give(self, work: Work) -> Errand:
        """Have this done."""
        errand = Errand(loop=self._loop)
        self.under_way += 1
        if len(self._threads) < self._most and len(self._threads) < self.under_way:
            thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._given.put((work, errand))
        return errand

    def close(self) -> None:
        """Wait until all errands are done."""
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        for work, errand in iter(self._given.get, None):
            result, error = None, None
            try:
                result = self._do(work)
            except BaseException as raised:
                error = raised
            self._loop.call_soon_threadsafe(self._bring, errand, result, error)

    def _bring(self, errand: Errand, result: Any, error: BaseException | None) -> None:
        self.under_way -= 1
        errand.bring(result, error)
