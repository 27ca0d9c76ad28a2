"""The tasks of a job: their attempts and their output; failures of all jobs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from pydantic import Field

from loopline_master.core.explain.explain_job import explain_task, files_of_job
from loopline_master.core.scheduler import Scheduler
from loopline_master.dashboard import columns
from loopline_master.files.row_files import RowFiles
from loopline_master.http.auth import READERS, Caller
from loopline_master.http.live.output_search import OutputSearch
from loopline_master.http.live.task_output import TaskOutput
from loopline_master.http.lookups import found, job_view
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import (
    Cursor,
    FollowTask,
    InTaskState,
    JobNumber,
    Limit,
    OfUser,
    Rank,
    TaskNumber,
    WithParameters,
)
from loopline_master.outcomes import explain_ended_task
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.ways import with_ways
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_master.task_progress import TaskProgress
from loopline_shared.model import MAX_ID, TaskId
from loopline_shared.rest.bodies import (
    AttemptView,
    CheckpointList,
    Explanation,
    FailureReport,
    FoundLine,
    Page,
    TaskDetail,
    TaskView,
)
from loopline_shared.rest.columns import SweepColumns
from loopline_shared.rest.times import Moment

routes = Routes("tasks")

MOST_SWEPT = 20_000
MOST_JOBS = 100
"""Number of latest jobs with failures whose groups are merged, and number of jobs whose groups are cached."""
SearchText = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\r\n]*$", description="The text that lines must contain")
]
PRINTED = {"media_type": "text/plain", "headers": {"X-Loopline-Cut": "true if part of it was not kept"}}


@routes("GET /jobs/{job}/tasks", READERS, is_shared=True)
async def list_tasks(
    store: Store,
    scheduler: Scheduler,
    progress: TaskProgress,
    row_files: RowFiles,
    limits: Limits,
    job: JobNumber,
    state: InTaskState | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
    parameters: WithParameters = False,
) -> Page[TaskView]:
    """List a job's tasks, by number."""
    rows = row_files.rows if parameters else None
    page = await store.tasks.page(job, state=state, cursor=cursor, limit=limits.page_size(limit), rows=rows)
    page = found(page, f"job {job}")
    return page.model_copy(update={"items": [progress.shown(scheduler.state, task) for task in page.items]})


@routes("GET /jobs/{job}/sweep", READERS, answer=SweepColumns, is_shared=True)
async def get_sweep(store: Store, row_files: RowFiles, job: JobNumber) -> bytes:
    """Return a job's first 20,000 tasks in columns, with their parameters and metrics, to sort, filter and draw."""
    tasks = found(await store.tasks.sweep(job, MOST_SWEPT, row_files.rows), f"job {job}")
    return await asyncio.to_thread(columns.sweep, tasks)


@routes("GET /jobs/{job}/tasks/{task}", READERS)
async def get_task(
    store: Store,
    scheduler: Scheduler,
    progress: TaskProgress,
    row_files: RowFiles,
    job: JobNumber,
    task: TaskNumber,
) -> TaskDetail:
    """Return one task, with its attempts."""
    task_id = TaskId(job, task)
    detail = found(await store.tasks.detail(task_id, row_files.rows), f"task {task_id}")
    detail = progress.shown(scheduler.state, detail)
    return detail.model_copy(update={"outputs": list(await store.files.of_task(task_id) or ())})


@routes("GET /jobs/{job}/tasks/{task}/checkpoints", READERS)
async def list_checkpoints(store: Store, job: JobNumber, task: TaskNumber) -> CheckpointList:
    """List the checkpoints that a task keeps, the one with the most work first.

    A manifest and its pieces are files: `GET /files/{sha256}`.
    """
    await job_view(store, job)
    return CheckpointList(items=await store.attempts.checkpoints(TaskId(job, task)))


@routes("GET /jobs/{job}/tasks/{task}/stdout", READERS, declines=(410, 503), **PRINTED)
async def get_stdout(
    output: TaskOutput,
    caller: Caller,
    request: web.Request,
    job: JobNumber,
    task: TaskNumber,
    follow: FollowTask = False,
    rank: Rank = 0,
) -> web.StreamResponse:
    """Return the stdout of a task's accepted attempt, else of the attempt that ended last."""
    return await output.answer(request, caller, TaskId(job, task), stream="stdout", is_followed=follow, rank=rank)


@routes("GET /jobs/{job}/tasks/{task}/stderr", READERS, declines=(410, 503), **PRINTED)
async def get_stderr(
    output: TaskOutput,
    caller: Caller,
    request: web.Request,
    job: JobNumber,
    task: TaskNumber,
    follow: FollowTask = False,
    rank: Rank = 0,
) -> web.StreamResponse:
    """Return the stderr of a task's accepted attempt, else of the attempt that ended last."""
    return await output.answer(request, caller, TaskId(job, task), stream="stderr", is_followed=follow, rank=rank)


@routes("GET /jobs/{job}/tasks/{task}/explain", READERS, is_shared=True)
async def explain_this_task(
    scheduler: Scheduler, store: Store, exchange: Exchange, job: JobNumber, task: TaskNumber
) -> Explanation:
    """Explain the state of a task."""
    task_id = TaskId(job, task)
    explained = explain_task(scheduler, task_id)
    if explained is None:
        return explain_ended_task(found(await store.tasks.detail(task_id), f"task {task_id}"))
    return with_ways(explained, exchange, files_of_job(scheduler, job, task))


@routes("GET /jobs/{job}/attempts", READERS)
async def list_attempts_of_job(
    store: Store, limits: Limits, job: JobNumber, cursor: Cursor | None = None, limit: Limit = 100
) -> Page[AttemptView]:
    """List all attempts at a job's tasks, by id."""
    await job_view(store, job)
    return await store.attempts.of_job(job, cursor=cursor, limit=limits.page_size(limit))


@routes("GET /attempts", READERS)
async def list_attempts(
    store: Store,
    limits: Limits,
    since: Moment = 0.0,
    until: Moment | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[AttemptView]:
    """List the attempts that were at a worker at any time between two moments, by dispatch."""
    end = float(MAX_ID) if until is None else until
    return await store.attempts.between(since, end, cursor=cursor, limit=limits.page_size(limit))


@routes("GET /failures", READERS, is_shared=True)
async def list_failures(
    store: Store, row_files: RowFiles, user: OfUser | None = None, since: Moment = 0.0
) -> FailureReport:
    """Group the failed tasks of the latest 100 jobs with failures by exit code and reason, most frequent first.

    Jobs that ended before `since` are left out. Reasons that differ only in numbers or in parameters of the task are
    grouped together.
    """
    return await store.failures.across_jobs(owner=user, since=since, most_jobs=MOST_JOBS, rows=row_files.rows)


@routes("GET /jobs/{job}/lines", READERS)
async def find_lines(
    store: Store,
    search: OutputSearch,
    limits: Limits,
    job: JobNumber,
    text: SearchText,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[FoundLine]:
    """Find the lines of stdout and stderr that contain a text, in all tasks of a job, by task.

    A page may be empty and still have a `next`: at most 64 MiB are read for each.
    """
    await job_view(store, job)
    return await search.lines(job, text, cursor=cursor, limit=limits.page_size(limit))
