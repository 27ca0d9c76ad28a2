"""The task group: everything that the agent does concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self


class TaskGroup:
    """Group of asyncio tasks. A failure is the agent's own: it ends all tasks, and is raised at the end."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Cancel whatever still runs."""
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(*error)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def soon(self, act: Callable[[], None]) -> None:
        """Call ``act`` as soon as the loop comes round."""
        asyncio.get_running_loop().call_soon(self.do, act)

    def do(self, act: Callable[[], None]) -> None:
        """Call ``act``; an error ends the group. For callbacks, whose caller could not handle an error."""
        try:
            act()
        except Exception as error:
            self.start(_fail(error))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, and return it."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _fail(error: Exception) -> None:
    raise error
