"""The submitter of calls: batches become jobs of the master, with one call or several in a task."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from loopline.functions.batching import CallBatcher
from loopline.functions.call_limit import CallLimit
from loopline.functions.call_link import CallLink
from loopline.functions.calls import (
    LONGEST_INLINE_BYTES,
    CallOptions,
    Loads,
    check_workers,
    common_spec,
    parameters_inline,
    parameters_of,
    spec_of,
)
from loopline.functions.futures import Batch, GridFuture, PendingFutures
from loopline.functions.submitted_jobs import ChunkedJob, SplitJob, SubmittedJob
from loopline.functions.user_modules import CarriedModules, UserModules
from loopline.functions.wait_notice import WaitNotice
from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import Function, TaskId, TaskState
from loopline_shared.protocol.chunks import join
from loopline_shared.spec import JobSpec

MOST_CALLS_PER_JOB = 1_000_000  # or tasks of several calls; the default limit of a master
PROBED_FOR_S = 2.0
TASK_S = 0.1
"""Duration that a task of several calls should have."""
FEWEST_TASKS = 400
"""Fewest tasks of a long map: then no task is a large part of it, however long its calls take."""
TASKS_PER_SLOT = 8
_MOST_SPECS = 256


class CallSubmitter:
    """Submits the calls of one executor. It lives in the loop in which it is made."""

    def __init__(
        self,
        client: RestClient,
        options: CallOptions,
        session: str,
        unfinished: PendingFutures,
        max_workers: int | None,
        *,
        loads: Loads,
        echoes: bool,
    ) -> None:
        self.jobs = array("q")  # numbers of the jobs; 8 bytes for each call of a loop
        self.loads, self.echoes = loads, echoes
        self.preparations: tuple[bytes, ...] = ()  # of every function, besides its modules
        self._client, self._options, self._session = client, options, session
        self._pending = unfinished
        self.max_workers, self._limit = max_workers, CallLimit(max_workers)
        self._link = CallLink(client)
        self._notice = WaitNotice(client, self._waiting_job)
        self.modules = UserModules(options.own_modules)
        self._specs: dict[tuple[bytes, CarriedModules], JobSpec] = {}  # by function, where the master has it
        self._slots = 0  # of the workers that were connected at first
        self._under_way: set[asyncio.Future[Any]] = set()  # submissions and cancellations
        self._has_checked = False
        self._has_posted = False  # a call that the master has not answered
        self._turn = asyncio.Lock()  # first come, first served: the grid's order is that of submissions

    def protected(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the loop. If it raises, the open calls fail with that error: none may wait for ever."""
        try:
            callback(*arguments)
        except Exception as error:
            self._fail(self._pending.all(), error)

    def _fail(self, futures: Iterable[GridFuture], error: Exception) -> None:
        for future in futures:
            self._pending.settled(future)
            future.fail(error)

    def _fail_gathered(self, batcher: CallBatcher, error: Exception) -> None:
        """Fail all gathered calls, so that the next call is sent again."""
        while batches := batcher.pop():
            for batch in batches:
                self._fail(batch.futures, error)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start some of the work below; ``flush`` waits for it."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(lambda _: self.protected(self._is_over, task))

    def _is_over(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.result()

    def start(self, batcher: CallBatcher) -> None:
        """Submit what is gathered: a call alone at once, if there is nothing to wait for, and all else in a task."""
        try:
            if not self._posts_alone(batcher):
                self.begin(self.send_all(batcher))
        except Exception as error:
            self._fail_gathered(batcher, error)

    def _posts_alone(self, batcher: CallBatcher) -> bool:
        """True if one call was gathered, and is under way. The next one is not kept waiting for its answer."""
        may_post = self._has_checked and self._limit.is_none and not self._has_posted and not self._turn.locked()
        alone = batcher.pop_alone() if may_post else None
        if alone is not None and not self._is_posted(alone):
            self.begin(self._send(alone))
        return alone is not None

    def _is_posted(self, batch: Batch) -> bool:
        """Submit one call, of which the master may say all at once: that it is on disk, and its result."""
        with suppress(Exception):  # which ``_send`` meets again
            known = batch.function, self._needed(batch.function, batch.calls)
            common, parameters = self._specs.get(known), parameters_inline(batch.calls)
            if common is None or parameters is None or batch.futures[0].was_cancelled:
                return False
            job = SubmittedJob(self, self._client, batch.futures, 1)
            self._has_posted = self._link.post(spec_of(common, parameters, 1), job)
            if self._has_posted:
                self._under_way.add(job.answer)
                job.answer.add_done_callback(lambda _: self.protected(self._is_answered, job, batch, known))
        return self._has_posted

    def _is_answered(self, job: SubmittedJob, batch: Batch, known: tuple[bytes, CarriedModules]) -> None:
        """Submit a posted call again if the master has deleted its function since; fail it if it is refused else."""
        self._has_posted = False
        self._under_way.discard(job.answer)
        error = job.answer.exception()
        if isinstance(error, LooplineError) and error.code == "missing_input":
            self._specs.pop(known, None)
            self.begin(self._send(batch))
        elif error is not None:
            job.fail(error)

    async def send_all(self, batcher: CallBatcher) -> None:
        """Submit batches until none are left.

        The first call goes at once; those that come while it is on its way go together next. After many calls in a
        row, the next batch waits until no more come.
        """
        try:
            while not self._posts_alone(batcher) and (batches := batcher.pop()):
                if len(batches) == 1:
                    await self._send(batches[0])
                else:
                    await asyncio.gather(*map(self._send, batches))
                await batcher.pause()
        except Exception as error:
            self._fail_gathered(batcher, error)

    async def _send(self, batch: Batch) -> None:
        """Submit gathered calls, which fail if that raises."""
        try:
            await self.send(batch)
        except Exception as error:
            self._fail(batch.futures, error)

    async def send(self, batch: Batch) -> None:
        """Submit calls that are tasks of their own."""
        self._limit.hold(batch.futures)
        end = 0
        while (start := end) < len(batch.futures):
            end = await self._end_of_part(batch.futures, start)
            part = Batch(batch.function, batch.calls[start:end], batch.futures[start:end]).without_cancelled()
            if part.calls:
                job = SubmittedJob(self, self._client, part.futures, len(part.calls))
                await self._send_job(job, part.function, part.calls)

    async def send_chunks(self, function: bytes, calls: list[bytes], futures: list[GridFuture], chunk: int) -> None:
        """Submit tasks of ``chunk`` calls each, with a future for each task."""
        self._limit.hold(futures)
        end = 0
        while (start := end) < len(futures):
            end = await self._end_of_part(futures, start)
            some = calls[start * chunk : end * chunk]
            tasks = [join(some[first : first + chunk]) for first in range(0, len(some), chunk)]
            job = ChunkedJob(self, self._client, futures[start:end], len(tasks), calls=len(some), chunk=chunk)
            await self._send_job(job, function, tasks, chunk, len(some))

    async def _end_of_part(self, futures: list[GridFuture], start: int) -> int:
        """Wait until the limit has places for tasks from ``start`` on, and return where those of the next job end."""
        end = start + await self._limit.acquire(min(MOST_CALLS_PER_JOB, len(futures) - start))
        self._limit.release_after(futures[start:end])
        return end

    async def send_rest(self, function: bytes, calls: list[bytes], first: list[GridFuture], rest: GridFuture) -> None:
        """Submit the rest of a map when its first calls have shown how long they take, or have taken too long.

        ``rest`` gets as its result the futures of the tasks.
        """
        probes = asyncio.gather(*map(_watched, first), return_exceptions=True)
        await asyncio.wait([probes, _watched(rest)], timeout=PROBED_FOR_S, return_when=asyncio.FIRST_COMPLETED)
        if any(future.cancelled() for future in first):  # only giving up the whole map cancels any
            rest.cancel()
        if rest.cancelled():
            return
        chunk = chunk_for(calls, _seconds(first), self._slots)
        futures = [self._pending.another() for _ in range(0, len(calls), chunk)]
        self._pending.settled(rest)
        if rest.settle((futures.copy(), None)):  # who takes the results empties that list
            await self.send_chunks(function, calls, futures, chunk)
        else:
            for future in futures:
                future.cancel()

    async def follow(self, number: int, futures: list[GridFuture], count: int, function: Function) -> None:
        """Follow a job that was submitted before, by whatever program."""
        if function.chunk is None or function.calls is None:
            job = SubmittedJob(self, self._client, futures, count)
        else:
            job = SplitJob(self, self._client, futures, count, calls=function.calls, chunk=function.chunk)
        job.begin(number)
        if number not in self.jobs:
            self.jobs.append(number)
        self._link.follow(number, job)

    async def flush(self, *, at_once: bool = False) -> None:
        """Wait until the master has everything that was called. ``at_once``: without regard to ``max_workers``."""
        if at_once:
            self._limit.lift()
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def complete(self) -> None:
        """Wait until every call has ended."""
        await self.flush()
        if pending := self._pending.all():
            await asyncio.wait([_watched(future) for future in pending])

    async def running(self, jobs: Iterable[int]) -> set[TaskId]:
        """Return the tasks of these jobs that run, or are about to: a worker has a slot for them."""
        found = set[TaskId]()
        for job in jobs:
            found |= {task.id async for task in self._client.tasks(job, TaskState.RUNNING) if not task.prefetched}
        return found

    async def close(self) -> None:
        """Close the link when nothing is under way."""
        await self.flush()
        self._notice.close()
        await self._link.close()

    # As SubmissionListener

    def submitted(self, job: int) -> None:
        """Note the number of a submitted job."""
        self.jobs.append(job)
        self._notice.submitted()

    def settled(self, future: GridFuture) -> None:
        """Note that a future has its result, or is about to get it."""
        self._pending.settled(future)
        self._notice.ended()

    def unwanted(self, number: int, job: SubmittedJob) -> None:
        """Cancel a job of which no unfinished call is wanted any more."""
        self._link.drop(number, job)
        self.begin(self._cancel(number))

    def _waiting_job(self) -> int | None:
        """Return the earliest job that has an open call; None if there is none."""
        return min((future.task.job for future in self._pending.all() if future.task), default=None)

    async def _cancel(self, job: int) -> None:
        with suppress(LooplineError):  # the job has ended meanwhile
            await self._client.cancel(job)

    # One job

    async def _send_job(
        self, job: SubmittedJob, pickle: bytes, tasks: list[bytes], chunk: int | None = None, calls: int | None = None
    ) -> None:
        try:
            await self._submit(job, pickle, tasks, chunk, calls)
        except BaseException as error:
            job.fail(error)
            if not isinstance(error, Exception):
                raise

    def _needed(self, function: bytes, calls: Iterable[bytes]) -> CarriedModules:
        """Return the user's modules that go along. Raises LooplineError if they are too large."""
        return self.modules.needed(function, calls, self.preparations)

    async def _submit(
        self, job: SubmittedJob, pickle: bytes, tasks: list[bytes], chunk: int | None, calls: int | None
    ) -> None:
        """Submit a job and wait until it is on the master's disk.

        A function is uploaded once with the modules that it needs, unless the master has deleted it since.
        """
        async with self._turn:
            if not self._has_checked:
                self._slots = await check_workers(self._client, self._options)
                self._has_checked = True
            known = pickle, self._needed(pickle, tasks)
            was_there = known in self._specs
            if not was_there:
                if len(self._specs) >= _MOST_SPECS:  # a loop may have a new function in each turn
                    self._specs.clear()
                whole = known[1].with_function(pickle, self.preparations)
                self._specs[known] = await common_spec(self._client, whole, self._options, self._session)
            parameters = await parameters_of(self._client, tasks)
            if not job.is_wanted:  # all its futures were cancelled
                return
            await self._link.submit(spec_of(self._specs[known], parameters, calls or len(tasks), chunk), job)
        try:
            await job.answer
        except LooplineError as error:
            if error.code != "missing_input" or not was_there:
                raise
            self._specs.pop(known, None)
            job.answer = asyncio.get_running_loop().create_future()
            await self._submit(job, pickle, tasks, chunk, calls)


def chunk_for(calls: Sequence[bytes], seconds: Sequence[float], slots: int) -> int:
    """Return how many of these calls go into one task, if some took so many seconds; 1 if nothing is known."""
    if not seconds:
        return 1
    tasks = max(FEWEST_TASKS, TASKS_PER_SLOT * slots)
    by_time = int(TASK_S / max(median(seconds), 1e-9))
    by_bytes = LONGEST_INLINE_BYTES * len(calls) // (2 * sum(map(len, calls)))  # half, because calls differ in size
    return max(1, min(by_time, by_bytes, -(-len(calls) // tasks)))


def _seconds(futures: Iterable[GridFuture]) -> list[float]:
    """Return the durations of the calls of these futures, as far as they were made."""
    done = [future for future in futures if future.done() and not future.cancelled()]
    return [seconds for future in done if not future.exception() for seconds in future.result().seconds()]


def _watched(future: GridFuture) -> asyncio.Future[Any]:
    """Return a future that is done when this one is; its exception counts as seen."""
    watched = asyncio.wrap_future(future)
    watched.add_done_callback(lambda done: done.cancelled() or done.exception())
    return watched
