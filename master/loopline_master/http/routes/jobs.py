"""Jobs: submitted, looked at, steered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loopline_master.core.effects import Submitted
from loopline_master.core.events import Event, JobCancelled, JobPaused, JobResumed, JobSubmitted
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.files.row_files import counted
from loopline_master.http.auth import READERS, USERS, Caller
from loopline_master.http.ended_explanations import explain_ended_job
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, IdempotencyKey, InJobState, JobNumber, Limit, OfOwner, OnlyLive
from loopline_master.http.retained import keep_for_retry
from loopline_master.http.services import Services, found, job_view
from loopline_master.submissions.ended_predecessors import RETRIES, ask_in_chain, ask_in_turn
from loopline_master.submissions.job_inputs import list_inputs, warnings_about
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import Explanation, JobDetail, JobPage, JobView, Submission
from loopline_shared.settings_source import meant
from loopline_shared.spec import JobSpec

routes = Routes("jobs")


@routes("POST /jobs", USERS, status=201, declines=(409, 503))
async def submit_job(
    services: Services, caller: Caller, body: JobSpec, idempotency_key: IdempotencyKey | None = None
) -> Submission:
    """Submit a job.

    Answered once the job is on disk. With an Idempotency-Key it is safe to repeat: the same body gets the same
    answer, another body is declined.
    """
    event = JobSubmitted(caller.name, body, idempotency_key)
    if idempotency_key is None:
        return await _submit(services, event)
    return await submit_once(services, event, idempotency_key)


@routes("GET /jobs", READERS)
async def list_jobs(
    services: Services,
    state: InJobState | None = None,
    owner: OfOwner | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
    live: OnlyLive = False,
) -> JobPage:
    """List jobs, newest first; live jobs in the order of their arrival."""
    read = services.store.jobs.live_page if live else services.store.jobs.page
    page = await read(state=state, owner=owner, cursor=cursor, limit=services.page_size(limit))
    return page.model_copy(update={"items": [services.forecaster.with_eta(job) for job in page.items]})


@routes("GET /jobs/{job}", READERS)
async def get_job(services: Services, job: JobNumber) -> JobDetail:
    """One job, with what was submitted."""
    return services.forecaster.with_eta(found(await services.store.jobs.detail(job), f"job {job}"))


@routes("POST /jobs/{job}/cancel", USERS, declines=(409,))
async def cancel_job(services: Services, caller: Caller, job: JobNumber) -> JobView:
    """Give a job up: its attempts are stopped."""
    return await _steer(services, caller, job, JobCancelled)


@routes("POST /jobs/{job}/pause", USERS, declines=(409,))
async def pause_job(services: Services, caller: Caller, job: JobNumber) -> JobView:
    """Start nothing more of a job; what runs goes on. While paused it holds no other job."""
    return await _steer(services, caller, job, JobPaused)


@routes("POST /jobs/{job}/resume", USERS, declines=(409,))
async def resume_job(services: Services, caller: Caller, job: JobNumber) -> JobView:
    """Go on with a paused job."""
    return await _steer(services, caller, job, JobResumed)


@routes("POST /jobs/{job}/retry", USERS, declines=(409, 410, 503))
async def retry_job(services: Services, caller: Caller, job: JobNumber) -> JobView:
    """Try the unsuccessful tasks of a failed or cancelled job again; it counts as the last to come."""
    return await services.turns.take(RETRIES, _retry(services, caller, job))


@routes("GET /jobs/{job}/explain", READERS)
async def explain_this_job(services: Services, job: JobNumber) -> Explanation:
    """Why a job is where it is."""
    view = await job_view(services, job)
    ended = await services.store.jobs.states(view.waiting_for) if view.waiting_for else {}
    waiting = explain_job(services.scheduler, job, ended)
    if waiting is not None:
        return waiting
    story = found(await services.store.stories.of_job(job), f"job {job}")
    return explain_ended_job(await job_view(services, job), story)


async def submit_once(services: Services, event: JobSubmitted, key: str, *, is_own: bool = False) -> Submission:
    """``is_own``: the key was made up by the link on which it came."""
    if not is_own:
        services.own_keys.came_otherwise(key)
    is_new = is_own and services.own_keys.is_new(key)
    work = _submit(services, event) if is_new else _submit_or_find(services, event, key)
    return await services.turns.take((event.owner, key), work)


async def _submit(services: Services, event: JobSubmitted) -> Submission:
    _check_notify(services, event.spec)
    spec, remarks = await services.rows.checked(event.spec)
    event = replace(event, spec=spec, inputs=await list_inputs(services.blobs, spec))
    reply = await (ask_in_chain(services, event) if spec.after else services.ask(event))
    assert isinstance(reply, Submitted)
    warnings = [*reply.warnings, *remarks, *warnings_about(spec)]
    return Submission(id=reply.job, task_count=spec.task_count, warnings=warnings)


def _check_notify(services: Services, spec: JobSpec) -> None:
    """LooplineError where it names a command that this master does not have."""
    known = services.settings.notify_commands
    if spec.notify is not None and spec.notify.command is not None and spec.notify.command not in known:
        message = f"this master knows no command {spec.notify.command}: {meant(spec.notify.command, known)}"
        raise LooplineError("no_such_command", message, "its administrator sets notify_commands", status=422)


async def _submit_or_find(services: Services, event: JobSubmitted, key: str) -> Submission:
    before = await services.store.jobs.by_key(event.owner, key)
    if before is None:
        return services.answers.keep((event.owner, key), await _submit(services, event))
    if before.spec != counted(event.spec, before.task_count):
        message = f"job {before.id} was submitted under this Idempotency-Key with another body"
        raise LooplineError("key_used", message, "use a new key for each job", status=409)
    answer = Submission(id=before.id, task_count=before.task_count)
    return services.answers.get((event.owner, key), answer)


async def _steer(services: Services, caller: Caller, job: int, event: Callable[[int], Event]) -> JobView:
    caller.check_may_steer((await job_view(services, job)).owner)
    await services.ask(event(job))
    return await job_view(services, job)


async def _retry(services: Services, caller: Caller, job: int) -> JobView:
    """In turn: between reading a job's rows and the step that takes them in, they must not change."""
    view = await job_view(services, job)
    caller.check_may_steer(view.owner)
    if view.state not in (JobState.FAILED, JobState.CANCELLED):
        hint = "only failed and cancelled jobs can be retried"
        raise LooplineError("not_retriable", f"job {job} is {view.state}", hint, status=409)
    event = found(await services.store.retry_material(job), f"job {job}")
    async with services.keeper.letting_go:
        await keep_for_retry(services, event.job)
        await (ask_in_turn(services, event) if event.job.spec.after else services.ask(event))
    return await job_view(services, job)
