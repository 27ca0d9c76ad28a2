"""Jobs: submit, list, steer, explain."""

from __future__ import annotations

from functools import partial

from loopline_master.certificates.job_secrets import shown
from loopline_master.core.events import JobCancelled, JobLimited, JobPaused, JobResumed
from loopline_master.core.explain.explain_chain import ends_of_chains
from loopline_master.core.explain.explain_job import explain_job, files_of_job
from loopline_master.core.kernel.entities import most_failed
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Engine
from loopline_master.files.row_files import RowFiles
from loopline_master.forecaster import Forecaster
from loopline_master.http.auth import READERS, USERS, Caller
from loopline_master.http.live.streams import FollowedResults
from loopline_master.http.lookups import found, job_view
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import (
    Cursor,
    EndedSince,
    EndedUntil,
    FromStart,
    IdempotencyKey,
    InJobState,
    JobNumber,
    JobSort,
    Limit,
    Named,
    OfUser,
    OnlyLive,
    OnlyTasks,
    Prefer,
    WithLabel,
)
from loopline_master.outcomes import explain_ended_job, failure_reasons, with_failures
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.ways import with_ways
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_master.submissions.ended_jobs import Retries
from loopline_master.submissions.submissions import Submissions
from loopline_shared.rest.bodies import Explanation, JobChange, JobDetail, JobPage, JobView, Submission
from loopline_shared.spec import JobSpec

routes = Routes("jobs")


@routes("POST /jobs", USERS, status=201, declines=(409, 429, 503, 507), location="/jobs/{id}")
async def submit_job(
    submissions: Submissions,
    forecaster: Forecaster,
    followed: FollowedResults,
    caller: Caller,
    action: AuditedAction,
    body: JobSpec,
    idempotency_key: IdempotencyKey | None = None,
    prefer: Prefer = "",
) -> Submission:
    """Submit a job.

    The answer is sent once the job is on disk. With an Idempotency-Key the request is safe to repeat: the same body
    gets the same answer, another body is declined. With `Prefer: wait=1` the answer is sent a moment later, with the
    results of a job that is over by then.
    """
    made = await submissions.submit(caller.name, body, idempotency_key, action=action)
    more: dict[str, object] = {}
    if warnings := forecaster.warnings_about(made.id):
        more["warnings"] = [*made.warnings, *warnings]
    if notes := forecaster.notes_on(made.id):
        more["notes"] = notes
    if body.nodes > 1 and made.plan is None:
        more["plan"] = forecaster.start_of(made.id)
    if "wait=" in prefer:
        more["results"] = await followed.at_once(made.id)
    return made.model_copy(update=more) if more else made


@routes("GET /jobs", READERS, is_shared=True)
async def list_jobs(
    store: Store,
    forecaster: Forecaster,
    limits: Limits,
    state: InJobState | None = None,
    user: OfUser | None = None,
    named: Named | None = None,
    label: WithLabel | None = None,
    sort: JobSort = "-id",
    cursor: Cursor | None = None,
    limit: Limit = 100,
    live: OnlyLive = False,
    ended_since: EndedSince | None = None,
    ended_until: EndedUntil | None = None,
) -> JobPage:
    """List jobs, newest first; live jobs in the order of their arrival."""
    ended = partial(store.jobs.page, sort=sort, ended=(ended_since, ended_until))
    read = store.jobs.live_page if live else ended
    page = await read(state=state, owner=user, named=named, label=label, cursor=cursor, limit=limits.page_size(limit))
    return page.model_copy(update={"items": [forecaster.with_eta(job) for job in page.items]})


@routes("GET /jobs/{job}", READERS)
async def get_job(
    store: Store, forecaster: Forecaster, scheduler: Scheduler, caller: Caller, job: JobNumber
) -> JobDetail:
    """Return one job, with its spec and the large files being transferred for it.

    Only its user and admins see values of its environment. All others, and values of secrets, read `(hidden)`.
    """
    detail = forecaster.with_eta(found(await store.jobs.detail(job), f"job {job}"))
    spec = shown(detail.spec, is_own=caller.may_steer(detail.user))
    plan = forecaster.start_of(job) if spec.nodes > 1 else None
    more = {"files_coming": tuple(files_of_job(scheduler, job)), "spec": spec, "plan": plan or detail.plan}
    return detail.model_copy(update=more)


@routes("POST /jobs/{job}/cancel", USERS, declines=(409,))
async def cancel_job(engine: Engine, store: Store, caller: Caller, action: AuditedAction, job: JobNumber) -> JobView:
    """Cancel a job: its attempts are stopped."""
    return await _steer(engine, store, caller, action, JobCancelled(job))


@routes("POST /jobs/{job}/pause", USERS, declines=(409,))
async def pause_job(engine: Engine, store: Store, caller: Caller, action: AuditedAction, job: JobNumber) -> JobView:
    """Pause a job: its running tasks continue, and no others start. A paused job does not hold other jobs."""
    return await _steer(engine, store, caller, action, JobPaused(job))


@routes("POST /jobs/{job}/resume", USERS, declines=(409,))
async def resume_job(engine: Engine, store: Store, caller: Caller, action: AuditedAction, job: JobNumber) -> JobView:
    """Resume a paused job."""
    return await _steer(engine, store, caller, action, JobResumed(job))


@routes("PATCH /jobs/{job}", USERS, declines=(409,))
async def change_job(
    engine: Engine, store: Store, caller: Caller, action: AuditedAction, job: JobNumber, body: JobChange
) -> JobView:
    """Change how many attempts of a job may run at once. Those that run stay."""
    return await _steer(engine, store, caller, action, JobLimited(job, body.max_running))


@routes("POST /jobs/{job}/retry", USERS, declines=(409, 410, 429, 503))
async def retry_job(
    retries: Retries,
    store: Store,
    caller: Caller,
    job: JobNumber,
    tasks: OnlyTasks | None = None,
    from_start: FromStart = False,
) -> JobView:
    """Retry the unsuccessful tasks of a failed or cancelled job; it counts as the last to arrive."""
    caller.check_may_steer((await job_view(store, job)).user)
    only = {int(number) for number in tasks.split(",")} if tasks else ()
    await retries.retry(job, only, from_start=from_start)
    return await job_view(store, job)


@routes("GET /jobs/{job}/explain", READERS, is_shared=True)
async def explain_this_job(
    scheduler: Scheduler, store: Store, row_files: RowFiles, exchange: Exchange, job: JobNumber
) -> Explanation:
    """Explain the state of a job."""
    view = await job_view(store, job)
    ended = await store.jobs.states(ends_of_chains(scheduler.state, view.waiting_for)) if view.waiting_for else {}
    groups = await store.failures.of_job(job, view.finished_at, row_files.rows) if view.tasks.failed else []
    failures = failure_reasons(job, view.tasks.failed, groups)
    waiting = explain_job(scheduler, job, ended)
    if waiting is not None:
        waiting = with_ways(waiting, exchange, files_of_job(scheduler, job))
        return with_failures(waiting, failures) if failures else waiting
    story = found(await store.job_histories.of_job(job), f"job {job}")
    detail = found(await store.jobs.detail(job), f"job {job}")
    return explain_ended_job(detail, story, failures, most_failed(detail.spec.max_fails, detail.task_count))


async def _steer(
    engine: Engine,
    store: Store,
    caller: Caller,
    action: AuditedAction,
    event: JobCancelled | JobPaused | JobResumed | JobLimited,
) -> JobView:
    caller.check_may_steer((await job_view(store, event.job)).user)
    await engine.ask(event, action)
    return await job_view(store, event.job)
