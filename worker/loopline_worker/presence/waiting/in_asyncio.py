"""Routines in the agent, which has asyncio anyhow."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from loopline_worker.presence.waiting.routine import Routine, Wait

_T = TypeVar("_T")


async def run(routine: Routine[_T]) -> _T:
    """Run a routine and return what it returns. Cancelled, it closes the routine."""
    try:
        wait = next(routine)
        while True:
            wait = routine.send(await _is_readable(wait))
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        routine.close()


async def _is_readable(wait: Wait) -> bool:
    """Wait until the file can be read (True), or the time has come (False)."""
    readable, loop = asyncio.Event(), asyncio.get_running_loop()
    if wait.file is not None:
        loop.add_reader(wait.file, readable.set)
    try:
        async with asyncio.timeout_at(wait.until):
            await readable.wait()
    except TimeoutError:
        pass
    finally:
        if wait.file is not None:
            loop.remove_reader(wait.file)
    return readable.is_set()
