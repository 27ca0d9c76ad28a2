"""The task group: everything that the agent does concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self


class TaskGroup:
    """Group of asyncio tasks. A failure is the agent's own: it ends all tasks, and is raised at the end."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Cancel whatever still runs."""
        at_end = asyncio.CancelledError()  # has the group cancel its tasks, where no error does
        try:
            await self._group.__aexit__(*(error if error[0] else (type(at_end), at_end, None)))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        except asyncio.CancelledError as cancelled:
            if cancelled is not at_end:
                raise

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
        return self._group.create_task(work)


async def _fail(error: Exception) -> None:
    raise error
