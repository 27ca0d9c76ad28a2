"""A limit on responses that have no end, and their cancellation when the master stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopline_shared.errors import LooplineError


class OpenStreams:
    """The tasks that send event streams, results, and task output; at most ``limit`` at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def seat(self) -> Iterator[None]:
        """Count the current task as a stream. Raises LooplineError if there are too many."""
        if len(self._tasks) >= self._limit:
            message = f"{self._limit} clients are listening, which is this master's limit"
            raise LooplineError("too_many_listeners", message, "raise limits.max_listeners", status=503)
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def cancel_all(self) -> None:
        """Cancel every stream: the master is stopping."""
        for task in self._tasks:
            task.cancel()
