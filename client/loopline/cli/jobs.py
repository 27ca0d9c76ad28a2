"""Commands that show jobs and their tasks."""

from __future__ import annotations

from typing import Annotated

from loopline.cli import follow, values
from loopline.cli.common import PLAIN, Common, JobNumber, SubjectOrWorker, page_size, read_by, some
from loopline.cli.render import knowledge, tables
from loopline_shared.ids_and_states import JobState, TaskState


async def jobs(*, state: JobState | None = None, limit: int = 20, common: Common = PLAIN) -> None:
    """List jobs, the latest first.

    Parameters
    ----------
    state
        Only jobs in this state.
    limit
        At most so many; 0: all.
    """
    async with common.client() as client:
        items = await some(limit, client.jobs(state, page_size=page_size(limit)))
    common.show(items, lambda: tables.cut(tables.jobs(items), len(items), limit))


async def job(job: JobNumber, /, *, wait: bool = False, common: Common = PLAIN) -> int:
    """Show one job, or wait for it.

    Parameters
    ----------
    job
        Number of the job.
    wait
        Follow it until it is over; the exit code then tells whether it succeeded.
    """
    if wait:
        return await follow.follow(job, common)
    async with common.client() as client:
        detail = await client.job(job)
    common.show(detail, lambda: tables.job(detail))
    return 0


async def tasks(
    job: JobNumber, /, *, state: TaskState | None = None, limit: int = 100, common: Common = PLAIN
) -> None:
    """List a job's tasks: their parameters, where and how long they ran, and why they failed.

    Parameters
    ----------
    job
        Number of the job.
    state
        Only tasks in this state.
    limit
        At most so many; 0: all.
    """
    async with common.client() as client:
        items = await some(limit, client.tasks(job, state, page_size=page_size(limit), parameters=True))
    common.show(items, lambda: tables.cut(tables.tasks(items), len(items), limit))


async def failures(
    *,
    user: str | None = None,
    since: Annotated[float, read_by(values.since, "TIME")] = 0.0,
    common: Common = PLAIN,
) -> None:
    """Group the failed tasks of the latest jobs by exit code and reason, the most frequent first.

    Reasons that differ only in numbers, or in the parameters of their task, are one line.

    Parameters
    ----------
    user
        Only jobs of this user.
    since
        Only jobs that ended since then: 7d ago, or a time with its zone such as 2027-01-31T08:00:00+01:00 (default:
        the latest 100 jobs with failed tasks).
    """
    async with common.client() as client:
        report = await client.failures(user, since)
    common.show(report, lambda: knowledge.failures(report))


async def explain(subject: SubjectOrWorker, /, *, common: Common = PLAIN) -> None:
    """Explain the state of a job, a task or a worker, or where the time of a finished one went.

    Parameters
    ----------
    subject
        A job such as 12, a task such as 12.3, or a worker's name.
    """
    async with common.client() as client:
        explanation = await client.explain(subject)
    common.show(explanation, lambda: tables.explanation(explanation))
