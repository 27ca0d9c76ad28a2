"""The client of a master: its REST API, and sweeps of rows and calls of functions as jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from loopline.in_a_call import check_may_submit
from loopline.page_links import html_of
from loopline.rest_client import RestClient
from loopline_shared.rest.bodies import Submission, TaskResult
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

if TYPE_CHECKING:
    from loopline.job import AsyncJob


class AsyncClient(RestClient):
    """Talks to one master; use it in ``async with``. Every method raises LooplineError, and nothing else.

    Modules that few programs need are imported at their first use.
    """

    async def run(self, job: JobSpec) -> list[TaskResult]:
        """Submit a job, and return its results once it is over. One request is enough for a short job."""
        submitted = await self.submit(job, wait=True)
        if submitted.results is not None:
            return submitted.results
        return [result async for result in self.results(submitted.id)]

    async def submit_rows(self, job: JobSpec, rows: Iterable[Mapping[str, Scalar]]) -> Submission:
        """Submit a job that has a task for each row of parameters, such as ``{"lr": 0.1, "seed": 7}``.

        Rows are taken one by one, and there may be a million.
        """
        from loopline.transfer import row_upload as of_rows

        async with of_rows.written(rows) as lines:
            if not lines.are_few:
                await of_rows.upload(self, lines)
            return await self.submit(job.model_copy(update={"parameters": lines.parameters()}))

    def __repr__(self) -> str:
        return f"<Client of {self.master}>"

    def _repr_html_(self) -> str:
        return html_of("Client", self.master)

    async def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> AsyncJob:
        """Submit one job that calls a function on the items of iterables taken together, as ``map`` does.

        ``options`` are those of CallOptions: name, size, requires, environment, timeout_s, max_attempts, ...
        """
        return await self.starmap(function, zip(*iterables, strict=False), **options)

    async def starmap(self, function: Callable[..., Any], calls: Iterable[Iterable[Any]], **options: Any) -> AsyncJob:
        """Submit one job that calls a function with each of these lists of arguments."""
        from loopline.functions import calls as of_calls
        from loopline.functions.user_modules import UserModules

        check_may_submit()
        chosen, pickle = of_calls.CallOptions(**options), of_calls.pickled(function)
        await of_calls.check_workers(self, chosen)
        arguments = [of_calls.pickled((tuple(call), {})) for call in calls]
        carried = UserModules(chosen.own_modules).needed(pickle, arguments)
        whole, session = carried.with_function(pickle), uuid4().hex
        return self.attach(await of_calls.submit_calls(self, whole, arguments, chosen, session))

    def attach(self, job: int) -> AsyncJob:
        """Return a job as an object, whoever submitted it."""
        from loopline.job import AsyncJob

        return AsyncJob(self, job)
