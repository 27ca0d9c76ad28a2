"""Requests of users and operators: each is checked against the present grid, then carried out.

A job with dependencies waits outside the grid until all of these have succeeded. While it waits it has no arrival and
takes no part in the hold. Its place among other jobs (arrival, size, finish tag) is fixed as it enters. A job whose
dependency failed or was cancelled keeps waiting: a retry of the dependency may still succeed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopline_master.core.estimates import measure, program_history
from loopline_master.core.kernel import lifecycle, transitions
from loopline_master.core.kernel.effects import Declined, Done, Reply, Submitted
from loopline_master.core.kernel.entities import UNRELEASED, Job, Program, SessionKey
from loopline_master.core.kernel.index.requirement_class import meets, requirement_class_of, unmet
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.kernel_events import (
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobsForgotten,
    JobSubmitted,
    WorkerDrained,
    WorkerUndrained,
)
from loopline_master.core.kernel.state import State
from loopline_shared.model import JobState, SizeSource, TaskState, is_reached
from loopline_shared.spec import JobSpec


def submit(state: State, event: JobSubmitted) -> Reply:
    spec, owner, count = event.spec, event.owner, event.spec.task_count
    session = None if spec.session is None else (owner, spec.session)
    declined = too_much(state, count) or _refusal(state, owner, count, event.spec_bytes, session)
    if declined is not None:
        return declined
    waits_for = _left_to_wait_for(state, spec, event.ended)
    if isinstance(waits_for, Declined):
        return waits_for
    job = _new_job(state, event, count)
    _enter(state, job, waits_for)
    if not job.needs and state.index.requirements.is_met(state.index.requirements.key_of(job)):
        return Submitted(job.id)
    return Submitted(job.id, tuple(warnings(state, spec, owner)))


def cancel(state: State, event: JobCancelled) -> Reply:
    job = state.jobs.get(event.job)
    if job is not None and not job.is_over:
        _end(state, job, "the job was cancelled")
        return Done()
    return _is_over(event.job)


def pause(state: State, event: JobPaused) -> Reply:
    """Pause a job: its running tasks continue, but no more are started. While paused it holds no other job."""
    return _set_paused(state, event.job, paused=True)


def resume(state: State, event: JobResumed) -> Reply:
    return _set_paused(state, event.job, paused=False)


def retry(state: State, event: JobRetried) -> Reply:
    """Let a failed or cancelled job enter the grid again, as the last to arrive.

    Its unsuccessful tasks count as never started; a failed job may keep some tasks as failed. It waits again if its
    dependencies have not succeeded.
    """
    if event.job.id in state.jobs:
        still = state.jobs[event.job.id]
        return Declined(409, "not_over", f"job {still.id} is {still.state}" + _stopping(still), "try again later")
    refused = refused_retry(event.job.id, event.job.state)
    if refused is not None:
        return refused
    if len(state.jobs) >= state.settings.max_jobs:
        return _queue_full(state)
    was = event.job
    declined = _refusal(state, was.owner, was.task_count, was.spec_bytes, was.session)
    if declined is not None:
        return declined
    waits_for = _left_to_wait_for(state, event.job.spec, event.ended)
    if isinstance(waits_for, Declined):
        return waits_for
    job, tasks = replace(event.job), [replace(task) for task in event.tasks]  # the event stays as it is for the log
    job.departure, job.finished_at = None, None
    job.failed, job.held_at, job.released_at, job.cursor = event.failed, None, None, 0
    for task in tasks:
        task.started, task.failures, task.finished_at = False, 0, None
        task.votes, task.verdict, task.took_down, task.retry_at = (), "", (), None
        task.state = transitions.check(transitions.TASK, task.state, TaskState.QUEUED)
    _enter(state, job, waits_for, IntervalSet(event.succeeded))
    for task in tasks:
        state.put(task)
    return Done()


def forget(state: State, event: JobsForgotten) -> Reply:
    """Forget ended jobs, except those that are in memory again or that other jobs wait for."""
    followers = state.index.dependents.followers
    gone = tuple(job for job in event.jobs if job not in state.jobs and not followers(job))
    state.effects.forgotten_jobs += gone
    return Done()


def refused_retry(job: int, state: JobState) -> Declined | None:
    """Return the refusal to retry a job in this state; None if such a job can be retried."""
    if state is not JobState.WAITING and JobState.QUEUED in transitions.JOB[state]:
        return None
    hint = "only failed and cancelled jobs can be retried"
    return Declined(409, "not_retriable", f"job {job} is {state}", hint)


def drain(state: State, event: WorkerDrained | WorkerUndrained) -> Reply:
    """Have a worker finish its tasks, or end them now, and take no more; or end that.

    Draining again replaces the reason.
    """
    worker = state.workers.get(event.worker)
    if worker is None:
        hint = "loopline workers lists them"
        return Declined(404, "no_such_worker", f"there is no worker {event.worker}", hint)
    worker.draining = isinstance(event, WorkerDrained)
    worker.drain_reason = event.reason if isinstance(event, WorkerDrained) else ""
    state.put(worker)
    if worker.draining:
        lifecycle.retract_from(state, worker, "its worker is draining, and it had not begun")
    if isinstance(event, WorkerDrained) and event.now:
        lifecycle.clear(state, worker, "its worker was drained at once")
    return Done()


def _end(state: State, job: Job, reason: str) -> None:
    """Cancel a job and its launches."""
    if job.nodes > 1:
        state.lead.end_job(job, reason, if_it_runs=True)
    lifecycle.cancel_job(state, job, reason)


def _set_paused(state: State, job_id: int, *, paused: bool) -> Reply:
    job = state.jobs.get(job_id)
    if job is None or job.is_over:
        return _is_over(job_id)
    job.paused = paused
    state.put(job)
    if paused:
        if job.nodes > 1:
            state.lead.end_job(job, "its job is paused, and it had not begun", if_it_runs=False)
        lifecycle.retract_job(state, job, "its job is paused, and it had not begun")
    return Done()


def _refusal(state: State, owner: str, tasks: int, spec_bytes: int, session: SessionKey | None) -> Declined | None:
    """Return a wing's refusal of a job; None if it is accepted."""
    refusals = (admit(owner, tasks, spec_bytes, session) for admit in state.wings.admit)
    return next((refusal for refusal in refusals if refusal is not None), None)


def _new_job(state: State, event: JobSubmitted, task_count: int) -> Job:
    settings, spec = state.settings, event.spec
    given = spec.known_size
    job = Job(
        id=state.grid.next_job,
        owner=event.owner,
        spec=spec,
        task_count=task_count,
        size=given,
        order=settings.order_of(spec, task_count),
        within=settings.order_within,
        max_attempts=spec.max_attempts or settings.max_attempts,
        max_replicas=_replicas(spec, settings.max_replicas),
        arrival=UNRELEASED,
        state=JobState.WAITING,
        submitted_at=state.now,
        idempotency_key=event.idempotency_key,
        inputs=event.inputs,
        size_source=SizeSource.UNKNOWN if given is None else SizeSource.GIVEN,
        nodes=spec.nodes,
        spec_bytes=event.spec_bytes,
        max_running=spec.max_running,
    )
    state.grid.next_job += 1
    return job


def _stamp_size(state: State, job: Job) -> None:
    """Fix the size of a job that enters the grid: given, else predicted if possible, else none.

    Later knowledge changes estimates but not this size, because other jobs may wait for it.
    """
    program, job.shown = state.programs.get(job.program), None
    if job.size_source is SizeSource.GIVEN:
        if program is not None and not job.succeeded:
            job.log_mean = program_history.log_unit(program)
        return
    job.size, job.size_source = None, SizeSource.UNKNOWN
    if program is not None:
        _predict(state, job, program)


def _predict(state: State, job: Job, program: Program) -> None:
    """Set the predicted work of one task, and the size of the job that follows unless its user declined one."""
    job.predicted = predicted = program_history.predict(program)
    if predicted is None:
        return
    recorded = program.recorded
    if job.spec.size != "unknown":
        each = program_history.task_size(program, predicted)
        sizes = [task.size for task in job.spec.tasks or ()]
        missing = sizes.count(None) if sizes else job.task_count
        job.size = sum(size for size in sizes if size is not None) + missing * each
        job.size_source = SizeSource.PREDICTED
    if program.recorded != recorded or state.now >= program.used_at + program_history.NEWS_EVERY_S:
        program.used_at = state.now
        state.put(program)


def _replicas(spec: JobSpec, default: int | None) -> int | None:
    if spec.max_replicas is not None:
        return None if spec.max_replicas == "unlimited" else spec.max_replicas
    if spec.nodes > 1 or spec.requires.units or spec.retry_delay_s:  # they get replicas only on request
        return spec.quorum or 1
    return None if default is None else max(default, spec.quorum or 1)


def too_much(state: State, task_count: int) -> Declined | None:
    """Return the refusal of a job that exceeds a limit of this master; None if it is accepted."""
    if len(state.jobs) >= state.settings.max_jobs:
        return _queue_full(state)
    if task_count > state.settings.max_tasks:
        limit = state.settings.max_tasks
        message = f"{task_count:,} tasks are more than this master's limit of {limit:,}"
        return Declined(422, "too_many_tasks", message, "split the job, or raise max_tasks in the master's settings")
    return None


def _queue_full(state: State) -> Declined:
    message = f"{state.settings.max_jobs:,} jobs are unfinished, which is this master's limit"
    return Declined(503, "queue_full", message, "wait until some have completed, or raise max_jobs")


def _is_over(job_id: int) -> Declined:
    return Declined(409, "job_is_over", f"job {job_id} has already ended", f"loopline job {job_id} shows how")


def _stopping(job: Job) -> str:
    return "" if not job.is_over else ", but attempts of it are still being stopped"


def warnings(state: State, spec: JobSpec, owner: str = "") -> list[str]:
    """Return the warnings for the user who submits this job."""
    units = state.index.requirements.units
    return [
        *(
            f"a task needs {needed} {name}, and the limit is {most}: none starts before an admin raises it"
            for name, needed in ((name, spec.nodes * needed) for name, needed in spec.requires.needs.items())
            if (most := units.most(name, owner)) is not None and most < needed
        ),
        *_unmet(state, spec, owner),
    ]


def _unmet(state: State, spec: JobSpec, owner: str) -> list[str]:
    """Return the warning that no known worker meets the requirements of a job; empty if some do."""
    limits = state.index.requirements.units.limits
    key = requirement_class_of(spec.requires, spec.nodes, owner, limits=limits)
    if state.index.requirements.is_met(key):
        return []
    known = [worker.facts for worker in state.workers.values()]
    able = sum(meets(facts, key) for facts in known)
    if able >= spec.nodes:
        return []
    if not known:
        return ["no worker has joined yet: start one with `loopline worker`"]
    if spec.nodes > 1:
        return [f"of the workers known to this master {able} can have a member of this job, which needs {spec.nodes}"]
    missing = ", ".join(unmet(known, spec.requires, limits)) or "all of what it requires together"
    return [f"no worker has {missing} (stalled: it waits for one that has, and holds no other job meanwhile)"]


def _left_to_wait_for(state: State, spec: JobSpec, ended: Mapping[int, JobState]) -> tuple[int, ...] | Declined:
    """Return the dependencies that the job must still wait for.

    ``ended`` has the states of jobs that have left memory. If a job is in neither, the request is declined: its
    state must be read again.
    """
    waits_for = []
    for one in sorted(set(spec.after)):
        found = state.jobs[one].state if one in state.jobs else ended.get(one)
        if found is None:
            return Declined(409, "changed_meanwhile", f"job {one} has changed meanwhile", "try again")
        if found is JobState.SUCCEEDED and spec.after_state == "failed":
            return Declined(409, "has_succeeded", f"job {one} has succeeded: nothing is left to do after it", "")
        if not is_reached(spec.after_state, found):
            waits_for.append(one)
    return tuple(waits_for)


def _enter(state: State, job: Job, waits_for: tuple[int, ...], started: IntervalSet | None = None) -> None:
    """Let a new or retried job enter the grid as the last to arrive, or wait for its dependencies."""
    job.waiting_for = waits_for
    if started is not None:
        state.restore(job, started)
    for concerns, take_in in state.wings.enters:
        if not concerns or any(read(job) for read in concerns):
            take_in(job)
    if waits_for:
        _become(job, JobState.WAITING)
        job.arrival = UNRELEASED
    else:
        _take_its_place(state, job)
    state.put(job)


def stop_failing_jobs(state: State) -> None:
    """Stop the jobs that have reached their limit of failed tasks, since the rest would fail alike.

    GNU parallel has it as ``--halt soon,fail=N``. A stopped job counts as cancelled: it leaves the grid without
    completing, so that the order guarantee holds even if it was held back. A job whose tasks are all over fails.
    """
    for number in sorted(state.index.failing):
        _end(state, state.jobs[number], "the job was stopped: too many of its tasks failed")


def release_followers(state: State, job: Job) -> None:
    """Let jobs enter the grid that waited only for this one, in the order of submission.

    A job that waited for its failure is cancelled after its success, because it could never start.
    """
    for number in state.index.dependents.followers(job.id):
        follower = state.jobs[number]
        if job.state is JobState.SUCCEEDED and follower.spec.after_state == "failed":
            _end(state, follower, f"job {job.id} succeeded")
        if follower.is_over or not is_reached(follower.spec.after_state, job.state):
            continue
        follower.waiting_for = tuple(one for one in follower.waiting_for if one != job.id)
        if follower.waiting_for:
            state.put(follower)
            continue
        _take_its_place(state, follower)
        state.put(follower)


def _take_its_place(state: State, job: Job) -> None:
    """Let a job enter the grid. Virtual time restarts with the first job of a busy time, to keep its precision."""
    if not state.index.live:
        state.grid.virtual = 0.0
    _become(job, JobState.QUEUED)
    _stamp_size(state, job)
    job.arrival, job.entered_at = state.next_sequence(), state.now
    job.turn, job.tag = job.arrival, measure.tag_of(state.grid, job)
    if job.size is None and job.succeeded + job.failed:
        lifecycle.weigh(state, job)
    if job.session is not None:
        _join_session(state, job)


def _join_session(state: State, job: Job) -> None:
    """Give a job the turn of its session, and a finish tag after the session's last one.

    It is indexed at once: several jobs of a session may enter the grid in one event.
    """
    session = state.index.sessions.find(job.session)
    if session is not None:
        job.turn = session.turn
        job.tag += max(0.0, session.last_tag - state.grid.virtual)
    state.index.sessions.place(job)


def _become(job: Job, new: JobState) -> None:
    if job.state is not new:
        job.state = transitions.check(transitions.JOB, job.state, new)
