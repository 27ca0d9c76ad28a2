"""Calls on the grid as futures, batches of them as jobs, and what a map comes to as an iterator."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loopline.functions.calls import Outcome, outcomes_of
from loopline_shared.model import TaskId
from loopline_shared.protocol.chunks import ends
from loopline_shared.protocol.client_link import TaskEnd


class GridFuture(concurrent.futures.Future[Any]):
    """A call on the grid, or the calls of one task. It can be cancelled until its result is here; its task is killed
    when nobody wants any other call of its job any more.
    """

    def __init__(self, on_cancel: Callable[[GridFuture], None]) -> None:
        super().__init__()
        self.task: TaskId | None = None  # once it is submitted, as is ...
        self.abandon: Callable[[GridFuture], None] | None = None  # tells the job that nobody wants this call
        self.was_cancelled = False  # as ``cancelled()``, without waiting for who waits for it
        self.is_given_up = False  # its job knows that it was cancelled
        self._on_cancel = on_cancel
        self._ending = threading.RLock()

    def cancel(self) -> bool:
        with self._ending:
            if self.cancelled() or not super().cancel():
                return self.cancelled()
            self.was_cancelled = True
            self.set_running_or_notify_cancel()  # whoever waits for it hears of it
        self._on_cancel(self)
        return True

    def settle(self, outcome: Outcome) -> bool:
        """Whether it was waiting for it."""
        value, error = outcome
        if error is not None:
            return self.fail(error)
        if is_open := self._begin():
            self.set_result(value)
        return is_open

    def fail(self, error: BaseException) -> bool:
        if is_open := self._begin():
            self.set_exception(error)
        return is_open

    def _begin(self) -> bool:
        """Whether it may be given its end: from now on it cannot be cancelled."""
        with self._ending:
            return not self.done() and self.set_running_or_notify_cancel()


class PendingFutures:
    """An executor's futures that have not ended; ``on_cancel`` hears of each that is cancelled, in any thread."""

    def __init__(self, on_cancel: Callable[[GridFuture], None]) -> None:
        self._on_cancel = on_cancel
        self._lock = threading.RLock()  # a half-read map that is collected cancels its futures, in whatever thread
        self._futures: set[GridFuture] = set()
        self._is_closed = False

    def new(self) -> GridFuture:
        """For whoever calls; RuntimeError once it is closed."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return self.another()

    def another(self) -> GridFuture:
        """For what was called before it was closed."""
        future = GridFuture(self._cancelled)
        with self._lock:
            self._futures.add(future)
        return future

    def settled(self, future: GridFuture) -> None:
        """It has its end, or is about to get it."""
        with self._lock:
            self._futures.discard(future)

    def all(self) -> list[GridFuture]:
        with self._lock:
            return list(self._futures)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    def _cancelled(self, future: GridFuture) -> None:
        self.settled(future)
        self._on_cancel(future)


@dataclass
class Batch:
    """Calls of one function that go as one job."""

    function: bytes
    calls: list[bytes] = field(default_factory=list)
    futures: list[GridFuture] = field(default_factory=list)

    def without_cancelled(self) -> Batch:
        kept = [pair for pair in zip(self.calls, self.futures, strict=True) if not pair[1].was_cancelled]
        return Batch(self.function, [call for call, _ in kept], [future for _, future in kept])


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What the calls of one task came to; read as they are taken."""

    task: TaskId
    end: TaskEnd
    content: bytes | None
    count: int

    def outcomes(self) -> Iterator[Outcome]:
        return outcomes_of(self.task, self.end, self.content, self.count)

    def seconds(self) -> list[float]:
        """That each of those took which came to an end."""
        return [seconds for _, seconds, _ in ends(self.content or b"")]


def in_order(futures: list[GridFuture], rest: GridFuture | None, end: float | None) -> Iterator[Any]:
    """Values, as the standard library's: what is not taken is cancelled. ``rest`` comes to further futures; what a
    future comes to that has several calls is ChunkResult.
    """

    def results() -> Iterator[Any]:
        try:
            for future in futures:
                yield from _values(future.result(_left_s(end)))
            for future in rest.result(_left_s(end)) if rest else ():
                yield from _values(future.result(_left_s(end)))
        finally:
            for future in futures:  # those that are done stay as they are
                future.cancel()
            if rest and not rest.cancel():
                with suppress(Exception):
                    for future in rest.result():
                        future.cancel()

    return results()


def _left_s(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _values(result: Any) -> Iterator[Any]:
    if not isinstance(result, ChunkResult):
        yield result
        return
    for value, error in result.outcomes():
        if error is not None:
            raise error
        yield value
