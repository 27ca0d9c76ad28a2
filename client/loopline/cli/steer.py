"""Commands that steer a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

import loopline
from loopline.cli.common import PLAIN, Common, JobNumber, Subject
from loopline.cli.render import tables
from loopline_shared.errors import LooplineError
from loopline_shared.ids_and_states import TaskId
from loopline_shared.rest import bodies


async def cancel(job: JobNumber, /, *others: JobNumber, common: Common = PLAIN) -> None:
    """Cancel jobs: running tasks are killed, finished ones are kept.

    Parameters
    ----------
    job
        Number of the job.
    others
        Numbers of more jobs.
    """
    await _steer((job, *others), loopline.AsyncClient.cancel, common)


async def pause(job: JobNumber, /, *others: JobNumber, common: Common = PLAIN) -> None:
    """Start nothing more of a job until it is resumed; running tasks finish, and other jobs may pass it.

    Parameters
    ----------
    job
        Number of the job.
    others
        Numbers of more jobs.
    """
    await _steer((job, *others), loopline.AsyncClient.pause, common)


async def resume(job: JobNumber, /, *others: JobNumber, common: Common = PLAIN) -> None:
    """Resume paused jobs.

    Parameters
    ----------
    job
        Number of the job.
    others
        Numbers of more jobs.
    """
    await _steer((job, *others), loopline.AsyncClient.resume, common)


async def retry(
    job: Subject,
    /,
    *,
    task: Annotated[tuple[int, ...], Parameter(alias="-t", metavar="NUMBER")] = (),
    from_start: bool = False,
    common: Common = PLAIN,
) -> None:
    """Run the failed and cancelled tasks of a job again; the job goes to the end of the queue.

    Parameters
    ----------
    job
        A job such as 12, or a failed task of it such as 12.3.
    task
        Only this failed task, by its number; may be given several times.
    from_start
        Ignore their checkpoints.
    """
    number, tasks = (job.job, {job.task, *task}) if isinstance(job, TaskId) else (job, {*task})
    async with common.client() as client:
        view = await client.retry(number, sorted(tasks), from_start=from_start)
    _show([view], common)


async def _steer(
    jobs: Sequence[int], act: Callable[[loopline.AsyncClient, int], Awaitable[bodies.JobView]], common: Common
) -> None:
    """Apply an action to every job, and continue after a refusal. Raises LooplineError with all refusals."""
    views: list[bodies.JobView] = []
    refused: list[LooplineError] = []
    async with common.client() as client:
        for job in dict.fromkeys(jobs):
            try:
                views.append(await act(client, job))
            except LooplineError as error:
                if error.code == "unreachable":
                    raise
                refused.append(error)
    if views:
        _show(views, common)
    if refused:
        first = refused[0]
        message = "; ".join(dict.fromkeys(error.message for error in refused))
        raise LooplineError(first.code, message, first.hint, first.status)


def _show(views: Sequence[bodies.JobView], common: Common) -> None:
    """Show the jobs; as JSON, one job is a document, several are a list."""
    document = views if len(views) > 1 else views[0]
    lines = (Text.assemble(f"job {view.id} {view.name}: ", tables.job_state(view)) for view in views)
    common.show(document, lambda: Text("\n").join(lines))
