"""The two loops that run routines: the agent's, and the reporter's in a thread instead of a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import pytest

from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.presence.waiting.poll_loop import Bell, PollLoop
from loopline_worker.presence.waiting.routine import Routine
from loopline_worker.task_group import TaskGroup

in_both_loops = pytest.mark.parametrize("loop", ["asyncio", "poll"])


@asynccontextmanager
async def running(loop: str, *routines: Routine[None]) -> AsyncIterator[None]:
    """Run routines until the end of the context; their exceptions are raised there."""
    if loop == "asyncio":
        async with TaskGroup() as task_group:
            for routine in routines:
                task_group.start(run(routine))
            yield
        return
    end = Bell()
    thread = asyncio.create_task(asyncio.to_thread(PollLoop().run, *routines, _until_rung(end)))
    try:
        yield
    finally:
        end.ring()
        with suppress(_Ended):
            await thread


class _Ended(Exception):
    """The test is over."""


def _until_rung(end: Bell) -> Routine[NoReturn]:
    yield from end.rings()
    raise _Ended
