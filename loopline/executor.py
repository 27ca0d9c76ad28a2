"""``loopline.Executor``: the grid as a pool of the standard library's concurrent.futures."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from statistics import median
from types import ModuleType
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from loopline.calling import CallLink
from loopline.calls import (
    LONGEST_INLINE_BYTES,
    CallOptions,
    all_pickled,
    check_workers,
    job_of,
    parameters_of,
    pickled,
    python_here,
)
from loopline.client import AsyncClient
from loopline.files import upload
from loopline.futures import Batch, GridFuture, in_order
from loopline.portal import Portal
from loopline.sent import SentChunks, SentJob, SplitChunks
from shared.chunks import join
from shared.errors import LooplineError
from shared.model import Function
from shared.spec import Requirements

Answer = TypeVar("Answer")

MOST_CALLS_PER_JOB = 1_000_000  # or tasks of several: a master's own limit, unless it was raised
MOST_SINGLE_CALLS = 1000
"""Of one map, whose calls are tasks of their own without being asked to."""
PROBED_CALLS = 8
PROBED_FOR_S = 2.0
TASK_S = 0.1
"""So long a task of several calls should take."""
FEWEST_TASKS = 400
"""That the calls of a map are put into: none is a great part of it, however long its calls turn out to take."""
TASKS_PER_SLOT = 8
MANY_CALLS = 8
"""So many that came while others were submitted are many in a row."""
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
        self._options = CallOptions(
            name, size, Requirements.model_validate(requires or {}), environment or {}, timeout_s, max_attempts,
            max_replicas,
        )  # fmt: skip
        self._modules = tuple(modules)
        self._gather_s = gather_s
        self._session = session or uuid4().hex
        self._client = AsyncClient(master, token, patience_s=patience_s)
        self._portal = Portal("loopline-executor")
        self._link = self._portal.call(_made(CallLink, self._client))
        self._lock = threading.RLock()  # a half-read map that is collected cancels its futures, in whatever thread
        self._gathered: dict[bytes, Batch] = {}  # by the function's pickle
        self._pickles: dict[int, tuple[Callable[..., Any], bytes]] = {}  # by the function's identity
        self._is_gathering = False  # somebody sees to it that what was gathered is sent
        self._last_call = 0.0
        self._unfinished: set[GridFuture] = set()
        self._functions: dict[bytes, str] = {}  # SHA-256 of pickles that the master has
        self._slots = 0  # of the workers that were there at first
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
            self.settled(future)
            future.fail(error)
        return future

    def map(
        self,
        fn: Callable[..., Answer],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Answer]:
        """Results in order; ``timeout`` seconds from now on, for all.

        One task makes ``chunksize`` calls. Left out, each call is a task of its own where they are few; of many, some
        are made first to see how long they take, and as many go into one task as take about 0.1 s. However they go,
        each call has its own result or exception.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        items = list(zip(*iterables, strict=False))
        if chunksize is None:
            is_simple = self._options.max_attempts == 1 and self._options.timeout_s is None
            chunksize = 0 if is_simple and len(items) > MOST_SINGLE_CALLS else 1
        futures, rest = self._map(fn, items, chunksize) if items else ([], None)
        return in_order(futures, rest, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. Without ``wait``, results still come as long as this program runs."""
        with self._lock:
            self._is_shut_down = True
            pending = list(self._unfinished) if cancel_futures else []
        for future in pending:
            future.cancel()
        if not self._portal.is_open:
            return
        self._portal.call(self._flush())  # after which there is a future for each call
        if wait:
            concurrent.futures.wait(self._open_futures())
            self._portal.call(self._settle())
            self._portal.close()
        else:
            self._portal.start(self._close_when_done(self._open_futures()))

    # What only this one has.

    def attach(self, job: int) -> list[GridFuture]:
        """The futures of a job's calls, in their order, whichever program submitted it."""
        view = self._portal.call(self._client.job(job))
        function = view.spec.function
        if function is None:
            raise LooplineError("not_calls", f"job {job} runs commands", "loopline.Client().job() has its results")
        futures = [self._new_future() for _ in range(function.calls or view.task_count)]
        self._portal.call(self._follow(job, futures, view.task_count, function))
        return futures

    def slots(self) -> int:
        """How many calls the workers that are here can make at a time."""
        return self._portal.call(_slots(self._client))

    # Gathering: in the caller's thread.

    def _new_future(self) -> GridFuture:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return self._another_future()

    def _another_future(self) -> GridFuture:
        future = GridFuture(self._cancelled)
        with self._lock:
            self._unfinished.add(future)
        return future

    def _open_futures(self) -> list[GridFuture]:
        with self._lock:
            return list(self._unfinished)

    def _gather(self, fn: Callable[..., Any], call: bytes, future: GridFuture) -> None:
        """Functions are the same that have the same pickle: each ``obj.method`` is another object."""
        known = self._pickles.get(id(fn))
        function = known[1] if known else pickled(fn, self._modules)  # which may run anything: not in the lock
        with self._lock:
            self._pickles[id(fn)] = fn, function
            batch = self._gathered.setdefault(function, Batch(function))
            batch.calls.append(call)
            batch.futures.append(future)
            self._last_call = time.monotonic()
            is_first, self._is_gathering = not self._is_gathering, True
        if is_first:
            self._in_portal(lambda: self._work(self._send_gathered()))

    def _map(
        self, fn: Callable[..., Any], items: list[tuple[Any, ...]], chunk: int
    ) -> tuple[list[GridFuture], GridFuture | None]:
        """``chunk`` 0: to be found out. Futures of tasks, and one that comes to the others."""
        function = pickled(fn, self._modules)
        if chunk == 1:
            batch = Batch(function, list(all_pickled(((item, {}) for item in items), self._modules)))
            batch.futures = [self._new_future() for _ in items]
            self._in_portal(lambda: self._work(self._send(batch)))
            return batch.futures, None
        calls = list(all_pickled(items, self._modules))
        first = calls[:PROBED_CALLS] if chunk == 0 else calls
        futures = [self._new_future() for _ in range(0, len(first), chunk or 1)]
        self._in_portal(lambda: self._work(self._send_chunks(function, first, futures, chunk or 1)))
        if chunk:
            return futures, None
        rest = self._new_future()
        self._in_portal(lambda: self._work(self._send_rest(function, calls[PROBED_CALLS:], futures, rest)))
        return futures, rest

    def _in_portal(self, begin: Callable[[], object]) -> None:
        """Have it begun there, in turn."""
        if not self._portal.is_open:
            raise RuntimeError("it has been closed")
        self._portal.loop.call_soon_threadsafe(begin)

    def _cancelled(self, future: GridFuture) -> None:
        self.settled(future)
        if self._portal.is_open:
            self._portal.loop.call_soon_threadsafe(_give_up, future)

    def settled(self, future: GridFuture) -> None:
        with self._lock:
            self._unfinished.discard(future)

    # From here on: in the portal's thread.

    async def _send_gathered(self) -> None:
        """The first call goes at once; those that come while it is on its way go together next. Of many in a row one
        waits until no more come.
        """
        while batches := self._take_gathered():
            if len(batches) == 1:
                await self._send(batches[0])
            else:
                await asyncio.gather(*map(self._send, batches))
            if sum(len(batch.calls) for batch in self._gathered.values()) >= MANY_CALLS:
                await self._pause()

    def _take_gathered(self) -> list[Batch]:
        """None: whoever comes next begins anew."""
        with self._lock:
            gathered, self._gathered, self._pickles = self._gathered, {}, {}
            self._is_gathering = bool(gathered)
        return list(gathered.values())

    async def _pause(self) -> None:
        """Once no call has come for a moment."""
        give_up = time.monotonic() + _LONGEST_GATHERING_S
        while (now := time.monotonic()) < min(give_up, self._last_call + self._gather_s):  # noqa: ASYNC110
            await asyncio.sleep(self._last_call + self._gather_s - now)

    async def _flush(self) -> None:
        """Until all that was submitted is with the master."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, batch: Batch) -> None:
        """Calls that are tasks of their own."""
        batch = batch.without_cancelled()
        for start in range(0, len(batch.calls), MOST_CALLS_PER_JOB):
            calls, futures = batch.calls[start:][:MOST_CALLS_PER_JOB], batch.futures[start:][:MOST_CALLS_PER_JOB]
            job = SentJob(self, self._client, futures, len(calls))
            await self._send_job(job, batch.function, calls)

    async def _send_chunks(self, function: bytes, calls: list[bytes], futures: list[GridFuture], chunk: int) -> None:
        for first in range(0, len(futures), MOST_CALLS_PER_JOB):
            some = calls[first * chunk : (first + MOST_CALLS_PER_JOB) * chunk]
            tasks = [join(some[start : start + chunk]) for start in range(0, len(some), chunk)]
            parts = futures[first : first + MOST_CALLS_PER_JOB]
            job = SentChunks(self, self._client, parts, len(tasks), calls=len(some), chunk=chunk)
            await self._send_job(job, function, tasks, chunk, len(some))

    async def _send_rest(
        self, function: bytes, calls: list[bytes], first: list[GridFuture], rest: GridFuture
    ) -> None:
        """Once the first calls have told how long they take, or have not for a while."""
        await asyncio.wait([_watched(future) for future in first], timeout=PROBED_FOR_S)
        if rest.cancelled():
            return
        chunk = chunk_for(calls, _seconds(first), self._slots)
        futures = [self._another_future() for _ in range(0, len(calls), chunk)]
        self.settled(rest)
        if rest.settle((futures, None)):
            await self._send_chunks(function, calls, futures, chunk)
        else:
            for future in futures:
                future.cancel()

    async def _send_job(
        self, job: SentJob, pickle: bytes, tasks: list[bytes], chunk: int | None = None, calls: int | None = None
    ) -> None:
        try:
            if not self._has_checked:
                self._slots = await check_workers(self._client)
                self._has_checked = True
            await self._submit(job, pickle, tasks, chunk, calls)
        except BaseException as error:
            job.fail(error)
            if not isinstance(error, Exception):
                raise

    async def _submit(
        self, job: SentJob, pickle: bytes, tasks: list[bytes], chunk: int | None, calls: int | None
    ) -> None:
        """Until it is on the master's disk. A function's pickle is brought there once, unless the master has done
        away with it since.
        """
        was_there = pickle in self._functions
        if not was_there:
            self._functions[pickle] = await upload(self._client, pickle)
        function = Function(f"sha256:{self._functions[pickle]}", python_here(), self._session, chunk, calls)
        parameters = await parameters_of(self._client, tasks)
        self._link.submit(job_of(function, parameters, self._options, calls or len(tasks)), job)
        try:
            await job.answer
        except LooplineError as error:
            if error.code != "missing_input" or not was_there:
                raise
            self._functions.pop(pickle, None)
            job.answer = asyncio.get_running_loop().create_future()
            await self._submit(job, pickle, tasks, chunk, calls)

    async def _follow(self, number: int, futures: list[GridFuture], count: int, function: Function) -> None:
        if function.chunk is None or function.calls is None:
            job = SentJob(self, self._client, futures, count)
        else:
            job = SplitChunks(self, self._client, futures, count, calls=function.calls, chunk=function.chunk)
        job.begin(number)
        if number not in self.jobs:
            self.jobs.append(number)
        self._link.follow(number, job)

    def submitted(self, job: int) -> None:
        self.jobs.append(job)

    def unwanted(self, job: int, sent: SentJob) -> None:
        """Cancel it: nobody wants any of what is left of it."""
        self._link.drop(job, sent)
        self._work(self._cancel(job))

    async def _cancel(self, job: int) -> None:
        with suppress(LooplineError):  # it has ended meanwhile
            await self._client.cancel(job)

    async def _settle(self) -> None:
        """Until nothing is under way, and nothing is open."""
        await self._flush()
        await self._link.close()
        await self._client.__aexit__()

    async def _close_when_done(self, futures: list[GridFuture]) -> None:
        await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        await self._settle()
        self._portal.close()


def chunk_for(calls: Sequence[bytes], seconds: Sequence[float], slots: int) -> int:
    """How many of these calls go into one task, where some took so long. One, where nothing is known."""
    if not seconds:
        return 1
    tasks = max(FEWEST_TASKS, TASKS_PER_SLOT * slots)
    by_time = int(TASK_S / max(median(seconds), 1e-9))
    by_bytes = LONGEST_INLINE_BYTES * len(calls) // (2 * sum(map(len, calls)))  # half: they are not all equal
    return max(1, min(by_time, by_bytes, -(-len(calls) // tasks)))


def _seconds(futures: Iterable[GridFuture]) -> list[float]:
    """That their calls took, as far as they were made."""
    done = [future for future in futures if future.done() and not future.cancelled()]
    return [seconds for future in done if not future.exception() for seconds in future.result().seconds()]


def _watched(future: GridFuture) -> asyncio.Future[Any]:
    """For whoever only wants to know when it is done: its exception is somebody else's to see."""
    watched = asyncio.wrap_future(future)
    watched.add_done_callback(lambda done: done.cancelled() or done.exception())
    return watched


def _give_up(future: GridFuture) -> None:
    """What was cancelled before it was sent never is."""
    if future.sent:
        future.sent.unwanted(future)


async def _slots(client: AsyncClient) -> int:
    return sum([worker.slots async for worker in client.workers() if worker.connected])


async def _made(kind: Callable[..., Answer], *arguments: Any) -> Answer:
    """Made in the loop in which it will live."""
    return kind(*arguments)


def _flush_all() -> None:
    """At the end of the program: what was submitted is to reach the master."""
    for executor in list(_open):
        with suppress(Exception):
            if executor._portal.is_open:
                executor._portal.start(executor._flush()).result(_FLUSH_WITHIN_S)


# While threads can still be started, for which atexit is too late: before what concurrent.futures registered.
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
