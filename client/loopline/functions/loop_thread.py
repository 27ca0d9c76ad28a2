"""An event loop in a thread of its own, so that ordinary code can run coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

Answer = TypeVar("Answer")
_CLOSE_WITHIN_S = 5.0
_END = object()


class LoopThread:
    """A daemon thread with an event loop: a program that forgets to close it still ends."""

    def __init__(self, name: str = "loopline") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closing = False
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True in the loop's own thread, such as in a callback of a future; nothing may wait for the loop there."""
        return threading.current_thread() is self._thread

    @property
    def is_open(self) -> bool:
        """True until the loop is closed."""
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Run a coroutine in the loop. Raises RuntimeError if the loop is closed."""
        if not self.is_open:
            work.close()
            raise RuntimeError("it has been closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine in the loop and wait for its result. An interrupt cancels the coroutine."""
        if self.is_current:
            work.close()
            raise RuntimeError("called from its own thread: use the asynchronous form there")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Answer]) -> Iterator[Answer]:
        """Yield the items of an asynchronous iterator."""
        try:
            while (item := self.call(_next(items))) is not _END:
                yield item
        finally:
            if isinstance(items, AsyncGenerator) and self.is_open:
                self.call(items.aclose())

    def close(self) -> None:
        """Stop the loop and cancel what still runs in it."""
        if not self._is_closing:  # another stop would end what the thread has still to do
            self._is_closing = True
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join(_CLOSE_WITHIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


def run_at_once(work: Coroutine[Any, None, None]) -> None:
    """Run work to its end, or to the point at which it has to wait for something: it is left there."""
    with suppress(StopIteration):
        work.send(None)
    work.close()


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items, _END)
