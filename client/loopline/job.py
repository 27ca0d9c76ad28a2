"""A job as an object: made by submitting, or found again by its number, in whatever process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from loopline.functions.calls import CallError, Outcome, content_of, outcomes_of, read_call
from loopline.rest_client import RestClient
from loopline_shared.model import Function, JobState
from loopline_shared.rest.bodies import JobDetail, JobView, TaskResult


class AsyncJob:
    """All is asked of the master, so that it is true after any restart, of either."""

    def __init__(self, client: RestClient, id: int, warnings: list[str] | None = None) -> None:  # noqa: A002
        self.id = id
        self.warnings = warnings or []
        self._client = client

    def __repr__(self) -> str:
        return f"<job {self.id} of {self._client.master}>"

    async def view(self) -> JobDetail:
        return await self._client.job(self.id)

    async def state(self) -> JobState:
        return (await self.view()).state

    async def wait(self, timeout_s: float | None = None) -> JobDetail:
        """Until it is over, however it ended; TimeoutError where that takes longer."""
        async with asyncio.timeout(timeout_s):
            async for change in self._client.changes():
                if change.missed or self.id in change.jobs:
                    view = await self.view()
                    if view.finished_at is not None:
                        return view
        raise AssertionError("changes do not end")

    async def results(self) -> AsyncGenerator[TaskResult, None]:
        """Every task's result as it finishes, until the job is over; a CallResult where it is one call."""
        function = (await self.view()).spec.function
        async for result in self._client.results(self.id):
            yield await read_call(self._client, result) if function and not function.chunk else result

    async def values(self) -> AsyncGenerator[Any, None]:
        """What the functions returned, in the order of the calls, each as soon as it is there; what one raised is
        raised.
        """
        view = await self.view()
        function = view.spec.function
        if function is None:
            raise TypeError(f"job {self.id} runs commands: results() has what they printed")
        waiting: dict[int, list[Outcome]] = {}
        following = 1
        async for result in self._client.results(self.id):
            waiting[result.number] = await self._outcomes(result, function)
            while following in waiting:
                for value, error in waiting.pop(following):
                    if error is not None:
                        raise error
                    yield value
                following += 1
        if following <= view.task_count:
            first = 1 + (following - 1) * (function.chunk or 1)
            raise CallError("cancelled", f"call {first} of job {self.id} was never made: it was cancelled")

    async def _outcomes(self, result: TaskResult, function: Function) -> list[Outcome]:
        """Of each call that a task made."""
        if function.chunk is None or function.calls is None:
            call = await read_call(self._client, result)
            return [(call._value, call.error)]
        count = min(function.chunk, function.calls - (result.number - 1) * function.chunk)
        return list(outcomes_of(result.id, result, await content_of(self._client, result), count))

    async def cancel(self) -> JobView:
        return await self._client.cancel(self.id)

    async def pause(self) -> JobView:
        return await self._client.pause(self.id)

    async def resume(self) -> JobView:
        return await self._client.resume(self.id)

    async def retry(self) -> JobView:
        """Run its failed and cancelled tasks again."""
        return await self._client.retry(self.id)

    async def explain(self) -> str:
        """Why it is where it is, in a sentence."""
        return (await self._client.explain(self.id)).sentence
