"""``loopline.Executor``: the grid as a pool of the standard library's concurrent.futures."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from loopline.client import AsyncClient
from loopline.functions.batching import CallBatcher
from loopline.functions.call_submitter import CallSubmitter
from loopline.functions.calls import CallOptions, all_pickled, pickled
from loopline.functions.futures import Batch, GridFuture, PendingFutures, in_order
from loopline.functions.loop_thread import LoopThread
from loopline_shared.errors import LooplineError
from loopline_shared.spec import Requirements

Answer = TypeVar("Answer")

MOST_SINGLE_CALLS = 1000
"""Most calls of one map that are tasks of their own unless ``chunksize`` says otherwise."""
PROBED_CALLS = 8
_FLUSH_WITHIN_S = 10.0
_open: WeakSet[Executor] = WeakSet()


class Executor(concurrent.futures.Executor):
    """Calls functions on the grid's workers, in interpreters that stay warm as long as there are calls.

    What is submitted is a job of the master's, safe from the end of this program: ``jobs`` has the numbers, and
    ``attach`` in another program the futures. Functions, arguments and values travel by cloudpickle, so that workers
    need the same Python (major and minor) and what the function imports, but not the file that it stands in.

    ``size``: of one call, in reference CPU-seconds. ``modules``: of your own, to be carried along because workers do
    not have them. ``requires``: as of a job, such as ``{"memory_bytes": 2**30}``. ``session``: executors that give
    the same one share interpreters. ``gather_s``: of many calls in a row, those that follow one another so soon are
    one job; the first ones go at once.
    """

    def __init__(
        self,
        master: str | None = None,
        token: str | None = None,
        *,
        name: str = "",
        size: float | None = None,
        requires: Requirements | dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float | None = None,
        max_attempts: int = 1,
        max_replicas: int | None = None,
        modules: Iterable[ModuleType] = (),
        session: str | None = None,
        gather_s: float = 0.005,
        patience_s: float = 300.0,
    ) -> None:
        options = CallOptions(
            name=name,
            size=size,
            requires=Requirements.model_validate(requires or {}),
            environment=environment or {},
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            max_replicas=max_replicas,
        )
        self._chunks_may_vary = max_attempts == 1 and timeout_s is None
        self._modules = tuple(modules)
        self._client = AsyncClient(master, token, patience_s=patience_s)
        self._pending = PendingFutures(self._cancelled)
        self._batcher = CallBatcher(self._modules, gather_s)
        self._loop_thread = LoopThread("loopline-executor")
        self._submitter = self._loop_thread.call(
            _made(CallSubmitter, self._client, options, session or uuid4().hex, self._pending)
        )
        _open.add(self)

    @property
    def jobs(self) -> list[int]:
        """Numbers of the jobs that this executor has submitted or attached."""
        return self._submitter.jobs

    # The interface of concurrent.futures.Executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> GridFuture:
        """Call a function on the grid and return its future, as every executor does."""
        future = self._pending.new()
        try:
            if self._batcher.add(fn, pickled((args, kwargs), self._modules), future):
                self._begin(lambda: self._submitter.send_all(self._batcher.batches()))
        except Exception as error:  # as in a process pool, the error of pickling is set on the future
            self._pending.settled(future)
            future.fail(error)
        return future

    def map(
        self,
        fn: Callable[..., Answer],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Answer]:
        """Return the results in order; ``timeout`` is in seconds from now on, for all.

        One task makes ``chunksize`` calls. If it is left out, each call of a short map is a task of its own. Of a
        long map, some calls are made first to see how long they take, and as many go into one task as take about 0.1
        s. In either case each call has its own result or exception.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        items = list(zip(*iterables, strict=False))
        if chunksize is None:
            chunksize = 0 if self._chunks_may_vary and len(items) > MOST_SINGLE_CALLS else 1
        futures, rest = self._map(fn, items, chunksize) if items else ([], None)
        return in_order(futures, rest, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Without ``wait``, results still come as long as this program runs."""
        self._pending.close()
        for future in self._pending.all() if cancel_futures else ():
            future.cancel()
        if not self._loop_thread.is_open:
            return
        self._loop_thread.call(self._submitter.flush())  # now every call has a future
        if wait:
            concurrent.futures.wait(self._pending.all())
            self._loop_thread.call(self._close())
            self._loop_thread.close()
        else:
            self._loop_thread.start(self._close_when_done(self._pending.all()))

    # Additions

    def attach(self, job: int) -> list[GridFuture]:
        """Return the futures of a job's calls, in their order, whichever program submitted it."""
        view = self._loop_thread.call(self._client.job(job))
        function = view.spec.function
        if function is None:
            raise LooplineError("not_calls", f"job {job} runs commands", "loopline.Client().job() has its results")
        futures = [self._pending.new() for _ in range(function.calls or view.task_count)]
        self._loop_thread.call(self._submitter.follow(job, futures, view.task_count, function))
        return futures

    def slots(self) -> int:
        """Return how many calls the connected workers can make at a time."""
        return self._loop_thread.call(_slots(self._client))

    # In the caller's thread

    def _map(
        self, fn: Callable[..., Any], items: list[tuple[Any, ...]], chunk: int
    ) -> tuple[list[GridFuture], GridFuture | None]:
        """Submit a map, and return the futures of its tasks and one of the futures of the rest.

        ``chunk``: calls of a task; 0: to be found out by making some calls first.
        """
        function, sending = pickled(fn, self._modules), self._submitter
        if chunk == 1:
            batch = Batch(function, list(all_pickled(((item, {}) for item in items), self._modules)))
            batch.futures = [self._pending.new() for _ in items]
            self._begin(lambda: sending.send(batch))
            return batch.futures, None
        calls = list(all_pickled(items, self._modules))
        first = calls[:PROBED_CALLS] if chunk == 0 else calls
        futures = [self._pending.new() for _ in range(0, len(first), chunk or 1)]
        self._begin(lambda: sending.send_chunks(function, first, futures, chunk or 1))
        if chunk:
            return futures, None
        rest = self._pending.new()
        self._begin(lambda: sending.send_rest(function, calls[PROBED_CALLS:], futures, rest))
        return futures, rest

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the work in the loop's thread, in the order of calls."""
        if not self._loop_thread.is_open:
            raise RuntimeError("it has been closed")
        self._loop_thread.loop.call_soon_threadsafe(lambda: self._submitter.begin(work()))

    def _cancelled(self, future: GridFuture) -> None:
        if self._loop_thread.is_open:
            self._loop_thread.loop.call_soon_threadsafe(_give_up, future)

    # In the loop's thread

    async def _close(self) -> None:
        await self._submitter.close()
        await self._client.__aexit__()

    async def _close_when_done(self, futures: list[GridFuture]) -> None:
        await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        await self._close()
        self._loop_thread.close()


def _give_up(future: GridFuture) -> None:
    """Tell the job of a future that was cancelled. Calls cancelled before they are submitted never are."""
    if future.abandon:
        future.abandon(future)


async def _slots(client: AsyncClient) -> int:
    return sum([worker.slots async for worker in client.workers() if worker.connected])


async def _made(kind: Callable[..., Answer], *arguments: Any) -> Answer:
    """Make an object in the loop in which it will live."""
    return kind(*arguments)


def _flush_all() -> None:
    """Submit at the end of the program what was called and has not reached the master."""
    for executor in list(_open):
        with suppress(Exception):
            if executor._loop_thread.is_open:
                executor._loop_thread.start(executor._submitter.flush()).result(_FLUSH_WITHIN_S)


# Runs before the exit handler of concurrent.futures, while threads can still be started; atexit is too late.
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
