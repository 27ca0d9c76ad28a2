"""Submitted jobs of calls, and the futures of their tasks. All of it lives in the loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol

from loopline.echo import print_output
from loopline.functions.calls import CallError, Loads, content_of, outcome_of, outcomes_of
from loopline.functions.futures import ChunkResult, GridFuture
from loopline.rest_client import RestClient
from loopline_shared.model import TaskId
from loopline_shared.protocol.client_link import Over, TaskEnd


class SubmissionListener(Protocol):
    """Receives what becomes of submitted jobs. ``loads`` reads values of calls."""

    loads: Loads
    echoes: bool  # the output of calls is printed here before their results are set

    def submitted(self, job: int) -> None:
        """Note the number of a submitted job."""

    def settled(self, future: GridFuture) -> None:
        """Note that a future has its result, or is about to get it."""

    def unwanted(self, number: int, job: SubmittedJob) -> None:
        """Cancel a job of which no unfinished call is wanted any more."""


class SubmittedJob:
    """A job whose tasks make one call each, with a future for each task.

    It is a Listener of the link (call_link.py).
    """

    def __init__(
        self, waiting: SubmissionListener, client: RestClient, futures: list[GridFuture], count: int
    ) -> None:
        self.count = count
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._client = client
        self._futures: list[GridFuture | None] = [*futures]  # None once it has its result, which is not kept here
        self._waiting = waiting
        self._job = 0
        self._ended = 0  # number of tasks that ended
        self._wanted = len(futures)
        self._fetching: set[asyncio.Task[None]] = set()
        self._why: Exception | None = None  # set when no more results will come

    @property
    def is_wanted(self) -> bool:
        """True until the last of its futures is cancelled."""
        return not all(future is None or future.was_cancelled for future in self._futures)

    def submitted(self, job: int) -> None:
        """Note that the job is on the master."""
        self.begin(job)
        self._waiting.submitted(job)
        if not self.answer.done():  # its waiter may be gone
            self.answer.set_result(job)

    def begin(self, job: int) -> None:
        """Give the futures their tasks, and report those that were cancelled meanwhile."""
        self._job = job
        abandon = self.unwanted  # one bound method for all
        for future, task in zip(self._futures, self._tasks(), strict=True):
            assert future  # none has a result yet
            future.task, future.abandon = task, abandon
        for future in self._futures:
            if future and future.was_cancelled:  # during the submission
                self.unwanted(future)

    def ended(self, ends: list[TaskEnd]) -> None:
        """Set the results of the tasks that ended; results that are files are downloaded first."""
        for end in ends:
            self._ended += 1
            if not self._waiting.echoes and (end.value is None or end.value.sha256 is None):
                self._settle_or_fail(end, None if end.value is None or end.value.cut else end.value.data)
            else:
                fetching = asyncio.create_task(self._fetch(end))
                self._fetching.add(fetching)
                fetching.add_done_callback(self._fetched)

    def over(self, why: Over | Exception) -> None:
        """Fail the futures that are still open, when the last download is done."""
        error = _gone(why) if isinstance(why, Over) else why
        if not self._job and not self.answer.done():
            self.answer.set_exception(error)
        else:
            self._why = error
            self._fetched()

    def fail(self, error: BaseException) -> None:
        """Fail every future that is still open."""
        for future in filter(None, self._futures):
            self._waiting.settled(future)
            future.fail(error)

    def unwanted(self, future: GridFuture) -> None:
        """Note that a future was cancelled; the second report of the same future has no effect."""
        if not future.is_given_up:
            future.is_given_up = True
            self._has_one_less()

    # Futures and their tasks

    def _tasks(self) -> Iterator[TaskId]:
        """Yield the task of each future, in order."""
        return (TaskId(self._job, number) for number in range(1, self.count + 1))

    def _places(self, number: int) -> slice:
        """Return where the futures of one task are."""
        return slice(number - 1, number)

    def _pop_futures(self, number: int) -> list[GridFuture]:
        """Return the futures of one task, which has ended, and hold them no longer."""
        places = self._places(number)
        futures = [future for future in self._futures[places] if future]
        self._futures[places] = [None] * len(futures)
        return futures

    def _settle_or_fail(self, end: TaskEnd, content: bytes | None) -> None:
        """Set the results of a task. A future whose result cannot be read has the error."""
        futures = self._futures[self._places(end.number)]
        try:
            self._settle(end, content)
        except Exception as error:
            for future in filter(None, futures):
                self._give(future, (None, error))

    def _settle(self, end: TaskEnd, content: bytes | None) -> None:
        for future in self._pop_futures(end.number):
            future.worker = end.worker
            if not future.was_cancelled:
                self._give(future, outcome_of(TaskId(self._job, end.number), end, content, self._waiting.loads))

    def _give(self, future: GridFuture, outcome: tuple[object, BaseException | None]) -> None:
        self._waiting.settled(future)
        if future.settle(outcome):
            self._has_one_less()

    def _has_one_less(self) -> None:
        self._wanted -= 1
        if self._wanted == 0 and self._ended < self.count:
            self._waiting.unwanted(self._job, self)

    async def _fetch(self, end: TaskEnd) -> None:
        """Download a result that is a file, and print what the call has printed."""
        try:
            if self._waiting.echoes:
                await print_output(self._client, TaskId(self._job, end.number))
            content = await content_of(self._client, end)
        except Exception as error:
            for future in self._pop_futures(end.number):
                self._give(future, (None, error))
        else:
            self._settle_or_fail(end, content)

    def _fetched(self, fetched: asyncio.Task[None] | None = None) -> None:
        if fetched:
            self._fetching.discard(fetched)
        if self._why and not self._fetching:
            self.fail(self._why)


class ChunkedJob(SubmittedJob):
    """A job whose tasks make several calls each, with a future for each task."""

    def __init__(self, *arguments: Any, calls: int, chunk: int) -> None:
        super().__init__(*arguments)
        self._calls, self._chunk = calls, chunk

    def _count_of(self, number: int) -> int:
        return min(self._chunk, self._calls - (number - 1) * self._chunk)

    def _settle(self, end: TaskEnd, content: bytes | None) -> None:
        count, loads = self._count_of(end.number), self._waiting.loads
        made = ChunkResult(TaskId(self._job, end.number), end, content, count, loads)
        for future in self._pop_futures(end.number):
            self._give(future, (made, None))


class SplitJob(ChunkedJob):
    """A job whose tasks make several calls each, with a future for each call."""

    def _tasks(self) -> Iterator[TaskId]:
        return (TaskId(self._job, 1 + place // self._chunk) for place in range(self._calls))

    def _places(self, number: int) -> slice:
        return slice((number - 1) * self._chunk, min(number * self._chunk, self._calls))

    def _settle(self, end: TaskEnd, content: bytes | None) -> None:
        futures = self._pop_futures(end.number)
        task = TaskId(self._job, end.number)
        outcomes = outcomes_of(task, end, content, len(futures), loads=self._waiting.loads)
        for future, outcome in zip(futures, outcomes, strict=True):
            future.worker = end.worker
            self._give(future, outcome)


def _gone(over: Over) -> CallError:
    how = "was cancelled" if over.state == "cancelled" else f"has {over.state}" if over.state else "is gone"
    return CallError("cancelled", f"job {over.job} {how} before this call was made", "somebody cancelled it")
