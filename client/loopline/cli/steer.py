"""Commands that steer a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from loopline.cli.common import PLAIN, Common, JobNumber, Subject
from loopline.cli.render import tables
from loopline.client import AsyncClient
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import JobView


async def cancel(job: JobNumber, /, *, common: Common = PLAIN) -> None:
    """Cancel a job: running tasks are killed, finished ones are kept."""
    await _steer(job, AsyncClient.cancel, common)


async def pause(job: JobNumber, /, *, common: Common = PLAIN) -> None:
    """Start nothing more of a job until it is resumed; running tasks finish, and other jobs may pass it."""
    await _steer(job, AsyncClient.pause, common)


async def resume(job: JobNumber, /, *, common: Common = PLAIN) -> None:
    """Resume a paused job."""
    await _steer(job, AsyncClient.resume, common)


async def retry(
    job: Subject,
    /,
    *,
    task: Annotated[tuple[int, ...], Parameter(alias="-t", metavar="NUMBER")] = (),
    common: Common = PLAIN,
) -> None:
    """Run the failed and cancelled tasks of a job again; the job goes to the end of the queue.

    Parameters
    ----------
    job
        A job such as 12, or a failed task of it such as 12.3.
    task
        Only this failed task, by its number; may be given several times.
    """
    number, tasks = (job.job, {job.task, *task}) if isinstance(job, TaskId) else (job, {*task})
    async with common.client() as client:
        view = await client.retry(number, sorted(tasks))
    _show(view, common)


async def _steer(job: int, act: Callable[[AsyncClient, int], Awaitable[JobView]], common: Common) -> None:
    async with common.client() as client:
        view = await act(client, job)
    _show(view, common)


def _show(view: JobView, common: Common) -> None:
    common.show(view, lambda: Text.assemble(f"job {view.id} {view.name}: ", tables.job_state(view)))
