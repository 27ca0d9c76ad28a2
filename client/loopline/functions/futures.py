"""Futures of calls on the grid, batches of calls, and the iterator that a map returns."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from typing_extensions import TypeVar

from loopline.functions.calls import CallOutcome, Loads, outcomes_of
from loopline_shared.model import TaskId
from loopline_shared.protocol.chunks import ends
from loopline_shared.protocol.client_link import TaskEnd

Answer = TypeVar("Answer", default=Any)


class GridFuture(concurrent.futures.Future[Answer]):
    """A call on the grid, or the calls of one task.

    It can be cancelled until its result is here. Its task is killed once no other call of the same job is wanted.
    """

    def __init__(self, on_cancel: Callable[[GridFuture], None], is_running: Callable[[GridFuture], bool]) -> None:
        super().__init__()
        self.task: TaskId | None = None  # set when it is submitted
        self.worker: str | None = None  # that made the call; set when it has ended
        self.abandon: Callable[[GridFuture], None] | None = None  # set too: tells the job that the call is unwanted
        self.was_cancelled = False  # as ``cancelled()``, without its lock
        self.is_given_up = False  # its job has been told of the cancellation
        self.is_held = False  # it waits in this program, and has not been sent
        self._on_cancel = on_cancel
        self._is_running = is_running
        self._ending = threading.RLock()

    @property
    def job(self) -> int | None:
        """Number of the call's job; None until the master has it."""
        return None if self.task is None else self.task.job

    @property
    def state(self) -> str:
        """``waiting`` (in this program), ``submitted``, ``finished``, ``failed`` or ``cancelled``."""
        if self.done():
            return "cancelled" if self.cancelled() else "finished" if self.exception() is None else "failed"
        return "waiting" if self.task is None else "submitted"

    def __repr__(self) -> str:
        where = f" on {self.worker}" if self.worker else ""
        return f"<{type(self).__name__} {f'{self.task} ' if self.task else ''}{self.state}{where}>"

    def running(self) -> bool:
        """True while a worker makes the call: the master is asked. A call that runs can be cancelled all the same.

        Raises RuntimeError in a callback of a future, which may not wait for the master.
        """
        return not self.done() and self._is_running(self)

    def cancel(self) -> bool:
        """Cancel the call. True if it is cancelled, now or before."""
        with self._ending:
            if self.cancelled() or not super().cancel():
                return self.cancelled()
            self.was_cancelled = True
            self.set_running_or_notify_cancel()  # wakes those who wait for it
        self._on_cancel(self)
        return True

    def settle(self, outcome: CallOutcome) -> bool:
        """Set the outcome. True if the future was still open."""
        value, error = outcome
        if error is not None:
            return self.fail(error)
        if is_open := self._begin():
            self.set_result(value)
        return is_open

    def fail(self, error: BaseException) -> bool:
        """Set an exception. True if the future was still open."""
        if is_open := self._begin():
            self.set_exception(error)
        return is_open

    def _begin(self) -> bool:
        """True if the future is open; it can no longer be cancelled then."""
        with self._ending:
            return not self.done() and self.set_running_or_notify_cancel()


class PendingFutures:
    """Futures of an executor that have not ended; ``on_cancel`` and ``is_running`` are called in any thread."""

    def __init__(self, on_cancel: Callable[[GridFuture], None], is_running: Callable[[GridFuture], bool]) -> None:
        self._on_cancel = on_cancel
        self._is_running = is_running
        # Reentrant: the garbage collector may cancel the futures of a half-read map in any thread.
        self._lock = threading.RLock()
        self._futures: set[GridFuture] = set()
        self._refusal = ""

    def new(self) -> GridFuture:
        """Return a future for a new call. Raises RuntimeError if the executor is shut down."""
        with self._lock:
            if self._refusal:
                raise RuntimeError(self._refusal)
            return self.another()

    def another(self) -> GridFuture:
        """Return a future for calls that were made before the executor was shut down."""
        future = GridFuture(self._cancelled, self._is_running)
        with self._lock:
            self._futures.add(future)
        return future

    def settled(self, future: GridFuture) -> None:
        """Forget a future that has its result, or is about to get it."""
        with self._lock:
            self._futures.discard(future)

    def all(self) -> list[GridFuture]:
        """Return the pending futures."""
        with self._lock:
            return list(self._futures)

    def close(self, why: str) -> None:
        """Make no more new futures; ``new`` raises with this reason, or with the one that was given first."""
        with self._lock:
            self._refusal = self._refusal or why

    def _cancelled(self, future: GridFuture) -> None:
        self.settled(future)
        self._on_cancel(future)


@dataclass
class Batch:
    """Calls of one function that are submitted as one job."""

    function: bytes
    calls: list[bytes] = field(default_factory=list)
    futures: list[GridFuture] = field(default_factory=list)

    def without_cancelled(self) -> Batch:
        """Return the batch without the calls that were cancelled meanwhile."""
        kept = [pair for pair in zip(self.calls, self.futures, strict=True) if not pair[1].was_cancelled]
        return Batch(self.function, [call for call, _ in kept], [future for _, future in kept])


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """Result of a task of several calls, which is read as the outcomes are taken."""

    task: TaskId
    end: TaskEnd
    content: bytes | None
    count: int
    loads: Loads

    def outcomes(self) -> Iterator[CallOutcome]:
        """Yield the outcomes of the calls, in order."""
        return outcomes_of(self.task, self.end, self.content, self.count, loads=self.loads)

    def seconds(self) -> list[float]:
        """Return the durations of the calls that ended."""
        return [seconds for _, seconds, _ in ends(self.content or b"")]


def in_order(futures: list[GridFuture], rest: GridFuture | None, end: float | None) -> Iterator[Any]:
    """Return an iterator of values, as the standard library's ``map``: futures that are left over are cancelled.

    ``rest`` is a future of further futures. A future of several calls has a ChunkResult. What was taken is held no
    longer: neither the values nor the futures.
    """
    waiting = futures[::-1]  # the next one last, so that each can be popped

    def results() -> Iterator[Any]:
        try:
            yield from _taken(waiting, end)
            if rest:
                waiting.extend(reversed(rest.result(_left_s(end))))
                rest.result().clear()
            yield from _taken(waiting, end)
        finally:
            for future in reversed(waiting):  # finished ones stay as they are
                future.cancel()
            if rest and not rest.cancel():
                with suppress(Exception):
                    for future in rest.result():
                        future.cancel()

    return results()


def buffered(
    items: Iterator[tuple[Any, ...]],
    size: int,
    chunk: int,
    submit: Callable[[list[tuple[Any, ...]]], list[GridFuture]],
    end: float | None,
) -> Iterator[Any]:
    """Return an iterator of values as ``in_order`` does, which reads the items as values are taken.

    ``size``: most tasks whose values were not taken. They are submitted a quarter of them at a time.
    """
    futures = deque[GridFuture]()

    def fill() -> None:
        if part := list(islice(items, (size - len(futures)) * chunk)):
            futures.extend(submit(part))

    def results() -> Iterator[Any]:
        try:
            while futures:
                futures[0].result(_left_s(end))
                first = [futures.popleft()]
                if size - len(futures) >= max(1, size // 4):
                    fill()
                yield from _taken(first, end)
        finally:
            for future in futures:
                future.cancel()

    fill()
    return results()


def _taken(waiting: list[GridFuture], end: float | None) -> Iterator[Any]:
    """Yield the values of futures from the last one on, each of which leaves the list when it has its result."""
    while waiting:
        result = waiting[-1].result(_left_s(end))
        waiting.pop()
        if isinstance(result, ChunkResult):
            yield from _values(result)
        else:
            held = [result]
            del result
            yield held.pop()


def _left_s(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _values(result: ChunkResult) -> Iterator[Any]:
    outcomes = result.outcomes()
    while (outcome := next(outcomes, None)) is not None:
        value, error = outcome
        if error is not None:
            raise error
        held = [value]
        del outcome, value
        yield held.pop()
