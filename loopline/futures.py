"""Calls on the grid as futures, and batches of them as iterators."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loopline.calls import CallResult
from shared.model import TaskId


class GridFuture(concurrent.futures.Future[Any]):
    """A call on the grid. It can be cancelled until its result is here; its task is killed when nobody wants any
    other call of its job any more.
    """

    def __init__(self, on_cancel: Callable[[GridFuture], None]) -> None:
        super().__init__()
        self.task: TaskId | None = None  # once it is submitted
        self._on_cancel = on_cancel
        self._ending = threading.RLock()

    def cancel(self) -> bool:
        with self._ending:
            if self.cancelled() or not super().cancel():
                return self.cancelled()
            self.set_running_or_notify_cancel()  # whoever waits for it hears of it
        self._on_cancel(self)
        return True

    def settle(self, result: CallResult) -> None:
        if result.error is not None:
            self.fail(result.error)
        elif self._begin():
            self.set_result(result.get())

    def fail(self, error: BaseException) -> None:
        if self._begin():
            self.set_exception(error)

    def _begin(self) -> bool:
        """Whether it may be given its end: from now on it cannot be cancelled."""
        with self._ending:
            return not self.done() and self.set_running_or_notify_cancel()


@dataclass
class Batch:
    """Calls of one function that go as one job."""

    function: bytes
    calls: list[bytes] = field(default_factory=list)
    futures: list[GridFuture] = field(default_factory=list)

    def without_cancelled(self) -> Batch:
        kept = [pair for pair in zip(self.calls, self.futures, strict=True) if not pair[1].cancelled()]
        return Batch(self.function, [call for call, _ in kept], [future for _, future in kept])


def chunked(fn: Callable[..., Any]) -> Callable[[list[tuple[Any, ...]]], list[Any]]:
    def call_each(items: list[tuple[Any, ...]]) -> list[Any]:
        return [fn(*item) for item in items]

    return call_each


def in_order(futures: list[GridFuture], end: float | None) -> Iterator[Any]:
    """As the standard library's: what is not taken is cancelled."""

    def results() -> Iterator[Any]:
        try:
            for future in futures:
                yield future.result(None if end is None else end - time.monotonic())
        finally:
            for future in futures:  # those that are done stay as they are
                future.cancel()

    return results()


def flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    for chunk in chunks:
        yield from chunk
