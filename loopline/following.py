"""The results of many jobs, each as soon as it is there, over one connection that tells of news."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopline.calls import CallResult, read_call
from shared.api import JobView

if TYPE_CHECKING:
    from loopline.client import AsyncClient

_REST_S = 0.01
_REST_SHARE = 4.0
"""After a look that brought results, it rests for so many times as long as that took: the master has other users."""
_LONGEST_REST_S = 0.2
_LOOKS_AT_ONCE = 8

OnResult = Callable[[CallResult], None]
OnEnd = Callable[[JobView | Exception], None]


@dataclass(slots=True)
class _Followed:
    job: int
    count: int  # results that there will be
    on_result: OnResult
    on_end: OnEnd
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    cursor: str = ""
    seen: int = 0


class Following:
    """Runs in the loop in which it is made."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._jobs: dict[int, _Followed] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._looks = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._listening: asyncio.Task[None] | None = None

    def add(self, job: int, count: int, on_result: OnResult, on_end: OnEnd) -> None:
        """Hear of each result of a job, then of its end (an exception: it cannot be followed)."""
        followed = self._jobs[job] = _Followed(job, count, on_result, on_end)
        self._tasks[job] = asyncio.create_task(self._follow(followed))
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen())

    def drop(self, job: int) -> None:
        """Nobody wants to hear of it any more."""
        self._jobs.pop(job, None)
        if task := self._tasks.pop(job, None):
            task.cancel()
        self._hush()

    def close(self) -> None:
        for job in list(self._jobs):
            self.drop(job)

    async def _listen(self) -> None:
        try:
            async for change in self._client.changes(rest_s=_REST_S):
                for job in list(self._jobs) if change.missed else change.jobs:
                    if job in self._jobs:
                        self._jobs[job].stirred.set()
        except Exception as error:  # whoever waits must hear of it
            for followed in list(self._jobs.values()):
                self._end(followed, error)

    async def _follow(self, followed: _Followed) -> None:
        try:
            await self._look(followed)
            while followed.seen < followed.count:
                await followed.stirred.wait()
                followed.stirred.clear()
                if await self._look(followed) == 0 and (view := await self._view(followed)):
                    await self._look(followed)  # what came between the two
                    self._end(followed, view)
                    return
            self._end(followed, await self._client.job(followed.job))
        except Exception as error:  # whoever waits must hear of it
            self._end(followed, error)

    async def _look(self, followed: _Followed) -> int:
        """How many results were new."""
        began, before = time.monotonic(), followed.seen
        async with self._looks:
            async for result in self._client.results(followed.job, cursor=followed.cursor, follow=False):
                followed.cursor = result.cursor
                followed.seen += 1
                followed.on_result(await read_call(self._client, result))
        fresh = followed.seen - before
        if fresh and followed.seen < followed.count:
            await asyncio.sleep(min(_LONGEST_REST_S, _REST_SHARE * (time.monotonic() - began)))
        return fresh

    async def _view(self, followed: _Followed) -> JobView | None:
        """The job if it is over."""
        view = await self._client.job(followed.job)
        return view if view.finished_at is not None else None

    def _end(self, followed: _Followed, end: JobView | Exception) -> None:
        self._jobs.pop(followed.job, None)
        task = self._tasks.pop(followed.job, None)
        if task and task is not asyncio.current_task():
            task.cancel()
        followed.on_end(end)
        self._hush()

    def _hush(self) -> None:
        """Nobody listens for nothing."""
        if not self._jobs and self._listening:
            self._listening.cancel()
            self._listening = None
