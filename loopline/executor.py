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

from loopline.calls import CallError, CallOptions, CallResult, check_workers, pickled, submit_calls
from loopline.client import AsyncClient
from loopline.following import Following
from loopline.futures import Batch, GridFuture, chunked, flat, in_order
from loopline.portal import Portal
from shared.api import JobView
from shared.errors import LooplineError
from shared.model import TaskId
from shared.spec import Requirements

Answer = TypeVar("Answer")

MOST_CALLS_PER_JOB = 1_000_000  # a master's own limit, unless it was raised
_LONGEST_GATHERING_S = 0.2
_FLUSH_WITHIN_S = 10.0
_open: WeakSet[Executor] = WeakSet()


class Executor(concurrent.futures.Executor):
    """Calls functions on the grid's workers, in interpreters that stay warm as long as there are calls.

    What is submitted is a job of the master's, safe from the end of this program: ``jobs`` has the numbers, and
    ``attach`` in another program the futures. Functions, arguments and values travel by cloudpickle, so that workers
    need the same Python (major and minor) and what the function imports, but not the file that it stands in.

    ``size``: of one call, in reference CPU-seconds. ``modules``: of your own, to be carried along because workers do
    not have them. ``requires``: as of a job, such as ``{"memory_bytes": 2**30}``. ``session``: executors that give
    the same one share interpreters. ``gather_s``: calls that follow one another so soon are one job.
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
        self._options = CallOptions(
            name, size, Requirements.model_validate(requires or {}), environment or {}, timeout_s, max_attempts,
            max_replicas,
        )  # fmt: skip
        self._modules = tuple(modules)
        self._gather_s = gather_s
        self._session = session or uuid4().hex
        self._client = AsyncClient(master, token, patience_s=patience_s)
        self._portal = Portal("loopline-executor")
        self._following = self._portal.call(_made(Following, self._client))
        self._lock = threading.RLock()  # a half-read map that is collected cancels its futures, in whatever thread
        self._gathered: dict[bytes, Batch] = {}  # by the function's pickle
        self._pickles: dict[int, tuple[Callable[..., Any], bytes]] = {}  # by the function's identity
        self._last_call = 0.0
        self._unfinished: set[GridFuture] = set()
        self._of_job: dict[int, set[GridFuture]] = {}  # that somebody still wants
        self._under_way: set[asyncio.Task[None]] = set()  # what is sent to the master, and cancelled there
        self._is_shut_down = False
        self._has_checked = False
        self.jobs: list[int] = []
        _open.add(self)

    # What every executor has.

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> GridFuture:
        future = self._new_future()
        try:
            call = pickled((args, kwargs), self._modules)
            self._gather(fn, call, future)
        except Exception as error:  # as a process pool: what cannot be pickled is the future's error
            self._settled(future)
            future.fail(error)
        return future

    def map(
        self, fn: Callable[..., Answer], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Answer]:
        """One job. Results in order; ``timeout`` seconds from now on, for all. With a ``chunksize``, one task makes
        so many calls.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        items = list(zip(*iterables, strict=False))
        if chunksize == 1:
            return in_order(self._map(fn, items), end)
        chunks = [(items[start : start + chunksize],) for start in range(0, len(items), chunksize)]
        return flat(in_order(self._map(chunked(fn), chunks), end))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. Without ``wait``, results still come as long as this program runs."""
        with self._lock:
            self._is_shut_down = True
            pending = list(self._unfinished)
        if cancel_futures:
            for future in pending:
                future.cancel()
        if not self._portal.is_open:
            return
        self._portal.call(self._flush())
        if wait:
            concurrent.futures.wait(pending)
            self._portal.call(self._settle())
            self._portal.close()
        else:
            self._portal.start(self._close_when_done(pending))

    # What only this one has.

    def attach(self, job: int) -> list[GridFuture]:
        """The futures of a job's calls, in their order, whichever program submitted it."""
        view = self._portal.call(self._client.job(job))
        if view.spec.function is None:
            raise LooplineError("not_calls", f"job {job} runs commands", "loopline.Client().job() has its results")
        futures = [self._new_future() for _ in range(view.task_count)]
        self._portal.call(self._track(job, futures))
        return futures

    def slots(self) -> int:
        """How many calls the workers that are here can make at a time."""
        return self._portal.call(_slots(self._client))

    # Gathering: in the caller's thread.

    def _new_future(self) -> GridFuture:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = GridFuture(self._cancelled)
            self._unfinished.add(future)
        return future

    def _gather(self, fn: Callable[..., Any], call: bytes, future: GridFuture) -> None:
        """Functions are the same that have the same pickle: each ``obj.method`` is another object."""
        known = self._pickles.get(id(fn))
        function = known[1] if known else pickled(fn, self._modules)  # which may run anything: not in the lock
        with self._lock:
            is_first = not self._gathered
            self._pickles[id(fn)] = fn, function
            batch = self._gathered.setdefault(function, Batch(function))
            batch.calls.append(call)
            batch.futures.append(future)
            self._last_call = time.monotonic()
        if is_first:
            self._portal.start(self._flush_soon())

    def _map(self, fn: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[GridFuture]:
        if not calls:
            return []
        batch = Batch(pickled(fn, self._modules), [pickled((call, {}), self._modules) for call in calls])
        batch.futures = [self._new_future() for _ in calls]
        self._portal.call(self._begin(batch))
        return batch.futures

    def _cancelled(self, future: GridFuture) -> None:
        self._settled(future)
        if self._portal.is_open:
            self._portal.loop.call_soon_threadsafe(self._unwanted, future)

    def _settled(self, future: GridFuture) -> None:
        with self._lock:
            self._unfinished.discard(future)

    # From here on: in the portal's thread.

    async def _flush_soon(self) -> None:
        """Once no call has come for a moment."""
        give_up = time.monotonic() + _LONGEST_GATHERING_S
        while (now := time.monotonic()) < min(give_up, self._last_call + self._gather_s):  # noqa: ASYNC110
            await asyncio.sleep(self._last_call + self._gather_s - now)
        await self._flush()

    async def _flush(self) -> None:
        """Until all that was submitted is with the master."""
        with self._lock:
            gathered, self._gathered, self._pickles = self._gathered, {}, {}
        for batch in gathered.values():
            self._work(self._send(batch))
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _begin(self, batch: Batch) -> None:
        self._work(self._send(batch))

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, batch: Batch) -> None:
        batch = batch.without_cancelled()
        for start in range(0, len(batch.calls), MOST_CALLS_PER_JOB):
            end = start + MOST_CALLS_PER_JOB
            await self._send_job(batch.function, batch.calls[start:end], batch.futures[start:end])

    async def _send_job(self, function: bytes, calls: list[bytes], futures: list[GridFuture]) -> None:
        try:
            if not self._has_checked:
                await check_workers(self._client)
                self._has_checked = True
            job = await submit_calls(self._client, function, calls, self._options, self._session)
        except BaseException as error:
            for future in futures:
                self._settled(future)
                future.fail(error)
            if not isinstance(error, Exception):
                raise
            return
        await self._track(job, futures)

    async def _track(self, job: int, futures: list[GridFuture]) -> None:
        self.jobs.append(job)
        self._of_job[job] = set(futures)
        for number, future in enumerate(futures, 1):
            future.task = TaskId(job, number)

        def settle(result: CallResult) -> None:
            future = futures[result.number - 1]
            self._of_job[job].discard(future)
            self._settled(future)
            future.settle(result)

        def end(end: JobView | Exception) -> None:
            self._of_job.pop(job, None)
            why = end if isinstance(end, Exception) else _gone(end)
            for future in futures:
                self._settled(future)
                future.fail(why)

        self._following.add(job, len(futures), settle, end)
        for future in [future for future in futures if future.cancelled()]:  # while it was submitted
            self._unwanted(future)

    def _unwanted(self, future: GridFuture) -> None:
        """Cancel its job once nobody wants any of it."""
        wanted = self._of_job.get(future.task.job) if future.task else None
        if wanted is None or future not in wanted:
            return
        wanted.discard(future)
        assert future.task
        if not wanted:
            del self._of_job[future.task.job]
            self._following.drop(future.task.job)
            self._work(self._cancel(future.task.job))

    async def _cancel(self, job: int) -> None:
        with suppress(LooplineError):  # it has ended meanwhile
            await self._client.cancel(job)

    async def _settle(self) -> None:
        """Until nothing is under way, and nothing is open."""
        await self._flush()
        self._following.close()
        await self._client.__aexit__()

    async def _close_when_done(self, futures: list[GridFuture]) -> None:
        await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        await self._settle()
        self._portal.close()


def _gone(job: JobView) -> CallError:
    return CallError("cancelled", f"job {job.id} has {job.state} before this call was made", "somebody cancelled it")


async def _slots(client: AsyncClient) -> int:
    return sum([worker.slots async for worker in client.workers() if worker.connected])


async def _made(kind: Callable[..., Answer], *arguments: Any) -> Answer:
    """Made in the loop in which it will live."""
    return kind(*arguments)


def _flush_all() -> None:
    """At the end of the program: what was submitted is to reach the master."""
    for executor in list(_open):
        with suppress(Exception):
            if executor._portal.is_open and (executor._gathered or executor._under_way):
                executor._portal.start(executor._flush()).result(_FLUSH_WITHIN_S)


# While threads can still be started, for which atexit is too late: before what concurrent.futures registered.
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
