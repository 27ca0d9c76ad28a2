"""Long-lived responses: a limit on their number, and their end when the master stops or their token is revoked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopline_master.http.auth import Caller
from loopline_shared.errors import ExceededLimit, LooplineError
from loopline_shared.rest.bodies import LimitUse


class OpenStreams:
    """The tasks that send event streams, results and task output, at most ``limit`` at once; and workers' links."""

    def __init__(self, limit: int, of_one_user: int) -> None:
        self._limit, self._of_one_user = limit, of_one_user
        self._users = Counter[str]()
        self._seated: set[asyncio.Task[Any]] = set()
        self._tasks: dict[asyncio.Task[Any], str] = {}  # with the token of each

    @contextmanager
    def seat(self, caller: Caller) -> Iterator[None]:
        """Count the current task as a stream. Raises LooplineError if there are too many."""
        if len(self._seated) >= self._limit:
            message = f"{self._limit} clients are listening, which is this master's limit"
            raise LooplineError("too_many_listeners", message, "raise limits.max_listeners", status=503)
        if self._users[caller.name] >= self._of_one_user:
            used = f"{caller.name} has {self._users[caller.name]} of {self._of_one_user} streams"
            hint = "close some; an admin sets limits.user_listeners"
            quota = ExceededLimit(self._of_one_user, unit="concurrent-requests")
            raise LooplineError("user_listeners", f"{used} that one user may have open", hint, 429, quota=quota)
        with self.of(caller) as task:
            self._seated.add(task)
            self._users[caller.name] += 1
            try:
                yield
            finally:
                self._seated.discard(task)
                self._users[caller.name] -= 1
                self._users += Counter()  # drops users without streams

    def limit_of(self, user: str) -> LimitUse:
        """Return how many streams a user has open, and the limit."""
        return LimitUse(what="listeners", used=self._users[user], allowed=self._of_one_user)

    @contextmanager
    def of(self, caller: Caller) -> Iterator[asyncio.Task[Any]]:
        """Cancel the current task if the caller's token is revoked while the block runs."""
        task = asyncio.current_task()
        assert task
        self._tasks[task] = caller.token
        try:
            yield task
        finally:
            del self._tasks[task]

    def end(self, token: str) -> None:
        """Cancel the streams of a revoked token."""
        for task, opened_by in self._tasks.items():
            if opened_by == token:
                task.cancel()

    def cancel_all(self) -> None:
        """Cancel every stream: the master is stopping."""
        for task in self._seated:
            task.cancel()
