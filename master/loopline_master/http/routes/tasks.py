"""A job's tasks: what became of them, and what they wrote."""

from __future__ import annotations

from aiohttp import web

from loopline_master.core.explain.explain_job import explain_task
from loopline_master.http.auth import READERS
from loopline_master.http.ended_explanations import explain_ended_task
from loopline_master.http.live.output_following import follow_task
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, FollowTask, InTaskState, JobNumber, Limit, Moment, TaskNumber
from loopline_master.http.retained import kept
from loopline_master.http.services import Services, found, job_view
from loopline_shared.errors import LooplineError
from loopline_shared.model import MAX_ID, Stream, TaskId
from loopline_shared.rest.bodies import AttemptView, Explanation, Page, TaskDetail, TaskView

routes = Routes("tasks")

PRINTED = {"media_type": "text/plain", "headers": {"X-Loopline-Cut": "true where some of it was not kept"}}


@routes("GET /jobs/{job}/tasks", READERS)
async def list_tasks(
    services: Services,
    job: JobNumber,
    state: InTaskState | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[TaskView]:
    """List a job's tasks, by number."""
    page = await services.store.tasks.page(job, state=state, cursor=cursor, limit=services.page_size(limit))
    return found(page, f"job {job}")


@routes("GET /jobs/{job}/tasks/{task}", READERS)
async def get_task(services: Services, job: JobNumber, task: TaskNumber) -> TaskDetail:
    """One task, with its attempts."""
    task_id = TaskId(job, task)
    detail = found(await services.store.tasks.detail(task_id, services.rows.rows), f"task {task_id}")
    return detail.model_copy(update={"outputs": list(await services.store.files.of_task(task_id) or ())})


@routes("GET /jobs/{job}/tasks/{task}/stdout", READERS, declines=(410, 503), **PRINTED)
async def get_stdout(
    services: Services, request: web.Request, job: JobNumber, task: TaskNumber, follow: FollowTask = False
) -> web.StreamResponse:
    """What a task wrote to stdout: its accepted attempt, else the one that ended last."""
    return await _output(services, request, TaskId(job, task), "stdout", follow)


@routes("GET /jobs/{job}/tasks/{task}/stderr", READERS, declines=(410, 503), **PRINTED)
async def get_stderr(
    services: Services, request: web.Request, job: JobNumber, task: TaskNumber, follow: FollowTask = False
) -> web.StreamResponse:
    """What a task wrote to stderr: its accepted attempt, else the one that ended last."""
    return await _output(services, request, TaskId(job, task), "stderr", follow)


@routes("GET /jobs/{job}/tasks/{task}/explain", READERS)
async def explain_this_task(services: Services, job: JobNumber, task: TaskNumber) -> Explanation:
    """Why a task is where it is."""
    task_id = TaskId(job, task)
    return explain_task(services.scheduler, task_id) or explain_ended_task(
        found(await services.store.tasks.detail(task_id), f"task {task_id}")
    )


@routes("GET /jobs/{job}/attempts", READERS)
async def list_attempts_of_job(
    services: Services, job: JobNumber, cursor: Cursor | None = None, limit: Limit = 100
) -> Page[AttemptView]:
    """List all attempts at a job's tasks, by id."""
    await job_view(services, job)
    return await services.store.attempts.of_job(job, cursor=cursor, limit=services.page_size(limit))


@routes("GET /attempts", READERS)
async def list_attempts(
    services: Services,
    since: Moment = 0.0,
    until: Moment | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[AttemptView]:
    """List the attempts that were on their workers at some time between two moments, by dispatch."""
    end = float(MAX_ID) if until is None else until
    return await services.store.attempts.between(since, end, cursor=cursor, limit=services.page_size(limit))


async def _output(
    services: Services, request: web.Request, task: TaskId, stream: Stream, is_followed: bool
) -> web.StreamResponse:
    """Bytes as they were written; said to be UTF-8, which readers should not rely on."""
    if is_followed:
        return await follow_task(services, request, task, stream)
    written = await services.store.attempts.output(task, stream)
    if written is None:
        hint = "there is some once an attempt has ended; explain says how far it is"
        raise LooplineError("no_output", f"there is no output of task {task}", hint, status=404)
    _, output = written
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Loopline-Cut": str(output.cut).lower()}
    if output.sha256 is None:
        return web.Response(body=output.data, headers=headers)
    return web.FileResponse(await kept(services, task.job, output.sha256), headers=headers)
