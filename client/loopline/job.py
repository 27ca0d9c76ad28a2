"""A job as an object: made by submitting, or found by its number, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from loopline.functions.calls import CallError, CallOutcome, content_of, outcomes_of, read_call
from loopline.page_links import html_of
from loopline.predecessors import explained_wait, until_entered
from loopline.rest_client import RestClient
from loopline_shared.model import Function, JobState
from loopline_shared.rest.bodies import JobDetail, JobView, TaskResult
from loopline_shared.spec import JobSpec


class AsyncJob:
    """A job of one master. Every method asks the master, so that answers are true after any restart."""

    def __init__(
        self,
        client: RestClient,
        id: int,  # noqa: A002
        warnings: list[str] | None = None,
        *,
        spec: JobSpec | None = None,
    ) -> None:
        """``spec``: what was submitted, if that is known here."""
        self.id = id
        self.warnings: list[str] = warnings or []
        self._client, self._spec = client, spec

    def __repr__(self) -> str:
        return f"<job {self.id} of {self._client.master}>"

    def _repr_html_(self) -> str:
        return html_of("Job", self._client.master, [self.id])

    async def view(self) -> JobDetail:
        """Return the job as the master shows it."""
        return await self._client.job(self.id)

    async def state(self) -> JobState:
        """Return the state of the job."""
        return (await self.view()).state

    async def wait(self, timeout_s: float | None = None) -> JobDetail:
        """Wait until the job is over, however it ended. Raises TimeoutError if that takes longer.

        Raises LooplineError if it can never start, because a job before it failed or was cancelled.
        """
        is_waiting = False
        async with asyncio.timeout(timeout_s):
            async for change in self._client.changes():
                if change.missed or self.id in change.jobs or is_waiting:
                    view = await self.view()
                    if view.finished_at is not None:
                        return view
                    if is_waiting := view.state is JobState.WAITING:
                        await explained_wait(self._client, view)
        raise AssertionError("changes do not end")

    async def results(self) -> AsyncGenerator[TaskResult, None]:
        """Yield every task's result as it finishes, until the job is over; a CallResult if the task is one call.

        Raises LooplineError if it can never start, because a job before it failed or was cancelled.
        """
        spec = self._spec
        if spec is None or spec.after:
            view = await self.view()
            spec = view.spec
            await until_entered(self._client, view)
        function = spec.function
        async for result in self._client.results(self.id):
            yield await read_call(self._client, result) if function and not function.chunk else result

    async def values(self) -> AsyncGenerator[Any, None]:
        """Yield the return values of the calls in their order, each as soon as it is there.

        Raises the exception that a call raised.
        """
        view = await self.view()
        function = view.spec.function
        if function is None:
            raise TypeError(f"job {self.id} runs commands: results() has their output")
        await until_entered(self._client, view)
        waiting: dict[int, list[CallOutcome]] = {}
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

    async def _outcomes(self, result: TaskResult, function: Function) -> list[CallOutcome]:
        """Return the outcome of each call that a task made."""
        if function.chunk is None or function.calls is None:
            call = await read_call(self._client, result)
            return [(call._value, call.error)]
        count = min(function.chunk, function.calls - (result.number - 1) * function.chunk)
        return list(outcomes_of(result.id, result, await content_of(self._client, result), count))

    async def cancel(self) -> JobView:
        """Cancel the job."""
        return await self._client.cancel(self.id)

    async def pause(self) -> JobView:
        """Start nothing more of the job until it is resumed."""
        return await self._client.pause(self.id)

    async def resume(self) -> JobView:
        """Resume the job."""
        return await self._client.resume(self.id)

    async def retry(self) -> JobView:
        """Run the failed and cancelled tasks of the job again."""
        return await self._client.retry(self.id)

    async def explain(self) -> str:
        """Explain the state of the job in a sentence."""
        return (await self._client.explain(self.id)).sentence
