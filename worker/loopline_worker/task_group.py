"""All that the agent does at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self


class TaskGroup:
    """Work done side by side. What fails is the agent's own failure: it ends everything, and is raised at the end."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Whatever still goes on is dropped."""
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(*error)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def soon(self, act: Callable[[], None]) -> None:
        """As soon as the loop comes round."""
        asyncio.get_running_loop().call_soon(self.do, act)

    def do(self, act: Callable[[], None]) -> None:
        """For who is called back by others."""
        try:
            act()
        except Exception as error:
            self.start(_fail(error))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _fail(error: Exception) -> None:
    raise error
