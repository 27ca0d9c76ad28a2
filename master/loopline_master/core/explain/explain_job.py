"""Explanations of why a job or task waits: one sentence for people and counted reasons for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from loopline_master.core.explain import explain_gang
from loopline_master.core.explain.explain_chain import chain_reasons
from loopline_master.core.explain.explain_shares import slots_used_up, users_ahead
from loopline_master.core.explain.explain_sleep import frozen_note, sleepers_among
from loopline_master.core.explain.explain_transfers import explain_transfers, files_coming
from loopline_master.core.explain.explain_units import reserved_worker, units_used_up
from loopline_master.core.explain.phrases import counted, size_of, spoken, tasks_left
from loopline_master.core.explain.submission_notes import without_claim
from loopline_master.core.explain.vetoes import why_not_on
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import LIVE, Attempt, Job, Task
from loopline_master.core.kernel.index.requirement_class import meets, needs
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.checkpoints.checkpoints_wing import Checkpoints
from loopline_master.core.wings.exemptions.overdrawn import used_now
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.gangs.phases import launches_of
from loopline_master.core.wings.gangs.planning.explain_plan import explain_start
from loopline_master.core.wings.transfers.data_delay import known_files
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_master.core.wings.trust import trust
from loopline_shared.model import (
    AttemptId,
    AttemptState,
    JobState,
    TaskId,
    TaskState,
)
from loopline_shared.rest.bodies import Explanation, FileFlow, Reason

_MOST_JOBS = 5
_MOST_TRANSFERS = 3
_MOST_PREPARING = 3
_MOST_DRAINED = 3
_MOST_TRANSFERS_SHOWN = 100
_SESSION = "part of a session, which takes turns as one job: it waits for no other job, and none waits for it"


def explain_job(
    scheduler: Scheduler, job_id: int, ended: Mapping[int, JobState] = MappingProxyType({})
) -> Explanation | None:
    """Explain a job; None if it has ended or never was.

    ``ended``: the end states of jobs that it waits for; the scheduler may have forgotten some of them.
    """
    job = scheduler.state.jobs.get(job_id)
    if job is None or job.is_over:
        return None
    reasons = _reasons(scheduler.state, job) if job.is_live else chain_reasons(scheduler.state, job, ended)
    sentence = "; ".join(reason.detail for reason in reasons)
    return Explanation(subject=str(job_id), state=job.state.value, sentence=sentence, reasons=reasons)


def explain_task(scheduler: Scheduler, task_id: TaskId) -> Explanation | None:
    """Explain a task; None if it or its job has ended or never was."""
    state = scheduler.state
    job, task = state.jobs.get(task_id.job), state.tasks.get(task_id)
    if job is None or job.is_over:
        return None
    if not job.is_live:
        return _explain(task_id, "queued", chain_reasons(state, job, {})[:1])
    is_fresh = task_id.task in state.fresh[job.id]
    if not is_fresh and (task is None or not task.is_open):
        return None
    if task is not None and task.state is TaskState.RUNNING:
        workers = {a.worker for a in state.attempts.values() if a.task_id == task_id and a.state in LIVE}
        reasons = [_alive(state, task_id, job, task), *_preparing(state, job, workers)]
        return _explain(task_id, "running", [*reasons, *_coming(state, job, task.number)])
    if is_fresh and state.index.is_held(job):
        return _explain(task_id, "queued", [_held(state, job)])
    again = (
        f"to be tried again after {counted(task.failures, 'failure')}; " if task is not None and task.failures else ""
    )
    if task is not None and task.took_down:
        again += f"it {trust.downfall_verdict(task)}; "
    if task is not None and task.votes:
        again += f"{_voted(job, task)}; "
    if task is not None and task.number in state.index.ready_sets[job.id].delayed:
        return _explain(task_id, "queued", [_delayed_task(state, job, task)])
    used_up = next(iter([*units_used_up(state, job), *slots_used_up(state, job)]), None)
    waiting = _blocked(state, job) or used_up or _for_slot(state, job, 1, task_id.task)
    return _explain(task_id, "queued", [waiting.model_copy(update={"count": 1, "detail": again + waiting.detail})])


def _explain(task_id: TaskId, task_state: str, reasons: list[Reason]) -> Explanation:
    sentence = "; ".join(reason.detail for reason in reasons)
    return Explanation(subject=str(task_id), state=task_state, sentence=sentence, reasons=reasons)


def _reasons(state: State, job: Job) -> list[Reason]:
    """Return the reasons, the most important first."""
    reasons = []
    blocked, held = _blocked(state, job), state.index.is_held(job)
    unstarted = len(state.fresh[job.id]) + len(state.index.ready_sets[job.id].to_retry)
    unstarted -= held and not job.is_computed
    asked = len(state.index.ready_sets[job.id].under_replicated)
    if blocked is not None:
        reasons.append(blocked)
    if held:
        reasons.append(_held(state, job))
    if job.running:
        workers = {a.worker for a in state.attempts.values() if a.job == job.id and a.state in LIVE}
        reasons += _under_way(state, job)
        reasons += [explain_gang.phase_reason(state, gang) for gang in explain_gang.not_running(state, job)]
        reasons += _preparing(state, job, workers)
        reasons += _coming(state, job)
    plan = state.own(GangMemory).plans.get(job.id)
    reasons += explain_start(state, job)
    if unstarted and blocked is None and (plan is None or plan.start is None or plan.sets_aside):
        used_up = units_used_up(state, job)
        reasons += used_up or [_for_slot(state, job, unstarted), *users_ahead(state, job), *slots_used_up(state, job)]
    reasons += reserved_worker(state, job)
    if state.index.ready_sets[job.id].delayed:
        reasons.append(_delayed(state, job))
    if asked:
        reasons.append(_asked(state, job, asked))
    if job.running and not state.index.may_replicate(job):
        detail = f"no more replicas of it: its budget of {job.spec.replica_budget_s:g} s is spent"
        reasons.append(Reason(code="replica_budget", count=job.running, detail=detail))
    reasons += _exempt(state, job)
    if job.mismatches:
        detail = f"results of {_tasks(job.mismatches)} differ between workers"
        reasons.append(Reason(code="mismatch", count=job.mismatches, detail=detail))
    if done := job.succeeded + job.failed:
        detail = succeeded_words(job.succeeded, job.task_count, job.failed)
        reasons.append(Reason(code="done", count=done, detail=detail))
    return [*reasons, *_no_claim(job)]


def _no_claim(job: Job) -> list[Reason]:
    """Return the reason if the job has no claim for good: its session, or a missing size."""
    if job.session is not None:
        return [Reason(code="session", count=1, detail=_SESSION)]
    note = without_claim(job)
    return [] if note is None else [Reason(code="no_size", count=1, detail=note)]


def _preparing(state: State, job: Job, workers: set[str]) -> list[Reason]:
    """Return the preparations of workers for tasks that are there: they provide the job's software."""
    said = []
    for worker in sorted(workers):
        load = state.workers[worker].load
        said += [f"{worker} {words}" for of, words in (load.preparing if load else ()) if of == job.id]
    if not said:
        return []
    more = f"; and {len(said) - _MOST_PREPARING} more" if len(said) > _MOST_PREPARING else ""
    return [Reason(code="preparing", count=len(said), detail="; ".join(said[:_MOST_PREPARING]) + more)]


def _under_way(state: State, job: Job) -> list[Reason]:
    """Return how many tasks run, and how many wait at workers for a slot."""
    attempts = [one for one in state.attempts.values() if one.job == job.id and one.state in LIVE]
    reasons = []
    for code, does, is_queued in (("running", "running on", False), ("prefetched", "waiting for a slot on", True)):
        found = [one for one in attempts if one.is_queued is is_queued]
        if count := len({one.task for one in found}):
            which = "its only task" if job.task_count == 1 else f"{_tasks(count)} of {job.task_count}"
            workers = counted(len({one.worker for one in found}), "worker")
            reasons.append(Reason(code=code, count=count, detail=f"{which} {does} {workers}"))
    return reasons


def _exempt(state: State, job: Job) -> list[Reason]:
    """Return the reasons for the job's exemption: it made no progress, or is overdrawn."""
    reasons = []
    if job.stalled and job.starved_since is None:
        detail = f"it held other jobs for {spoken(job.idle_s)} without progress while slots were free for them"
        reasons.append(Reason(code="idle", count=1, detail=f"{detail}, so it holds no other job until it makes some"))
    if job.overdrawn and job.size:
        used = f"it has used {used_now(state, job) / job.size:.0f} times its size of {spoken(job.size)}"
        detail = f"{used} (overdrawn), so it holds no other job any more"
        reasons.append(Reason(code="overdrawn", count=1, detail=detail))
    return reasons


def _blocked(state: State, job: Job) -> Reason | None:
    """Return the reason that keeps all unstarted tasks of the job waiting beside free slots; None without one."""
    unstarted = len(state.fresh[job.id]) + len(state.index.ready_sets[job.id].to_retry)
    if job.is_computed:
        return None
    if job.paused:
        return Reason(code="paused", count=unstarted, detail="paused by its owner: nothing more of it is started")
    if job.starved_since is None or not (unstarted or job.quorum):
        return None
    if job.quorum and state.index.requirements.workers[state.index.requirements.key_of(job)]:
        detail = f"no other worker is connected that its quorum of {job.quorum} needs"
        detail += ", so it holds no other job meanwhile" if job.stalled else ""
        return Reason(code="no_worker", count=unstarted, detail=detail)
    key = state.index.requirements.key_of(job)
    able = [worker for worker in state.workers.values() if meets(worker.facts, key)]
    detail = f"no connected worker can run it (it needs {', '.join(needs(job.spec.requires))}); "
    detail += f"{len(able)} of {counted(len(state.workers), 'known worker')} could"
    if drained := sorted(worker.name for worker in able if worker.draining):
        more = f" and {len(drained) - _MOST_DRAINED} more" if len(drained) > _MOST_DRAINED else ""
        detail += f" (being drained: {', '.join(drained[:_MOST_DRAINED])}{more})"
    detail += sleepers_among(state, able)
    if job.nodes > 1:
        detail += f", and it needs {job.nodes} at once{explain_gang.refusals(state, job)}"
    detail += ", so it holds no other job meanwhile" if job.stalled else ""
    return Reason(code="no_worker", count=unstarted, detail=detail)


def _held(state: State, job: Job) -> Reason:
    predecessors = state.index.hold_over(job).predecessors(job.arrival, job.weight)
    first = state.index.live[predecessors[0]]
    more = f", as did {counted(len(predecessors) - 1, 'other job')}" if len(predecessors) > 1 else ""
    entered = f"job {first.id} ({size_of(first)}) entered the grid before it and is not larger{more}"
    what = "its last task is held"
    if job.is_computed:
        what = "it is computed and its output can be fetched, its delivery is held"
    detail = f"{what}: {entered}; {tasks_left(first, f'of job {first.id}')}"
    if job.shown is not None:
        detail += f"; it has no size, and counts as {spoken(job.shown)}, twice what its tasks have measured"
    return Reason(code="held", count=1, detail=detail, job=first.id)


def _delayed(state: State, job: Job) -> Reason:
    """Return how many tasks of the job must wait before they are tried again, and why."""
    tasks = [state.tasks[job.task_id(number)] for number in state.index.ready_sets[job.id].delayed]
    if (count := sum(task.retry_at is None for task in tasks)) == len(tasks):
        detail = f"{_tasks(count)} must not run twice at once, and an earlier attempt may still be running"
        return Reason(code="may_still_run", count=count, detail=detail)
    count, delay = len(tasks) - count, spoken(lifecycle.retry_delay_s(job, 1))
    detail = f"{_tasks(count)} failed, and {'waits' if count == 1 else 'wait'} before being tried again"
    return Reason(code="retry_delay", count=count, detail=f"{detail} ({delay}, doubled with each failure)")


def _delayed_task(state: State, job: Job, task: Task) -> Reason:
    if task.retry_at is None:
        workers = " and ".join(state.index.attempts.of_task[task.id])
        detail = f"it must not run twice at once, and may still be running on {workers}"
        return Reason(code="may_still_run", count=1, detail=detail)
    delay = spoken(lifecycle.retry_delay_s(job, task.failures))
    detail = f"to be tried again {delay} after its last failure; failed {counted(task.failures, 'time')} so far"
    return Reason(code="retry_delay", count=1, detail=detail)


def _asked(state: State, job: Job, count: int) -> Reason:
    able = len(state.index.requirements.workers[state.index.requirements.key_of(job)])
    verb = "needs" if count == 1 else "need"
    detail = f"{_tasks(count)} {verb} a result from another worker: {job.quorum} have to agree"
    return Reason(code="quorum", count=count, detail=f"{detail}, {counted(able, 'worker')} could run it")


def _voted(job: Job, task: Task) -> str:
    agree = task.agreeing
    differ = f", {len(task.votes) - agree} differ" if len(task.votes) > agree else ""
    return f"{counted(len(task.votes), 'result')} so far{differ}: {job.quorum} have to agree"


def _for_slot(state: State, job: Job, count: int, task: int | None = None) -> Reason:
    """Return how many tasks wait for a slot, and why ``task`` does not start on free ones; None: the next task."""
    if job.nodes > 1:
        return explain_gang.why_it_waits(state, job, count)
    requirements = state.index.requirements
    able = [state.workers[name] for name in sorted(requirements.able[requirements.key_of(job)])]
    used = sum(state.index.attempts.used.get(worker.name, 0) for worker in able)
    attempts = state.index.attempts
    slots = sum(max(worker.offered, attempts.used.get(worker.name, 0)) for worker in able)  # some may be withheld
    verb = "waits" if count == 1 else "wait"
    detail = f"{_tasks(count)} {verb} for a free slot: {used} of {slots} in use on {counted(len(able), 'worker')}"
    free = [w for w in able if state.index.slots.free_slots(w) >= job.slots and requirements.fits(job, w)]
    detail += why_not_on(state, job, task, free, known={reason.code for reason in slots_used_up(state, job)})
    waiting = [one for w in able for one in attempts.queues.of_worker.get(w.name, ()) if one.job != job.id]
    if waiting:
        detail += f"; {_by_job(waiting)} already {'waits' if len(waiting) == 1 else 'wait'} there"
    barred = [worker for worker in able if worker.quarantined_until is not None]
    if barred:
        detail += f"; {len(barred)} of them {'is' if len(barred) == 1 else 'are'} in quarantine: on {barred[0].name} "
        detail += barred[0].quarantine_reason
    reasons = [worker.load.withheld for worker in able if worker.load and worker.load.withheld]
    if reasons:
        detail += f"; {len(reasons)} of them {'keeps' if len(reasons) == 1 else 'keep'} slots back: {reasons[0]}"
    return Reason(code="no_slot", count=count, detail=detail)


def _alive(state: State, task_id: TaskId, job: Job, task: Task) -> Reason:
    if launches := launches_of(state, task_id):
        return explain_gang.phases_reason(state, launches)
    attempts = [a for a in state.index.attempts.of_task.get(task_id, {}).values() if a.state in LIVE]
    places = " and ".join(sorted(a.worker + _note(state, a) for a in attempts))
    if all(a.is_queued for a in attempts):
        return Reason(code="prefetched", count=len(attempts), detail=f"waiting for a slot on {places}")
    votes = f"; {_voted(job, task)}" if task.votes and job.quorum else ""
    took_down = f"; it {trust.downfall_verdict(task)} before" if task.took_down else ""
    saved = _checkpoints(state, attempts) if job.spec.checkpoint else ""
    return Reason(code="running", count=len(attempts), detail=f"running on {places}{took_down}{votes}{saved}")


def _checkpoints(state: State, attempts: Iterable[Attempt]) -> str:
    """Return the newest checkpoint of a task, and why there is no newer one."""
    wing, attempt = state.wings[Checkpoints], next(iter(attempts))
    known = wing.of(attempt.task_id)
    newest = f"; its checkpoint from {known[-1].worker} contains {known[-1].wall_s:.0f} s" if known else ""
    refused = (
        f"; no checkpoint on {one.worker}: {wing.refused[one.id]}" for one in attempts if one.id in wing.refused
    )
    return newest + "".join(refused)


def _note(state: State, attempt: Attempt) -> str:
    if attempt.state is AttemptState.DELIVERING:
        return " (delivering its result)"
    return frozen_note(state, attempt) or _queue_before(state, attempt)


def _queue_before(state: State, attempt: Attempt) -> str:
    """Return the tasks before a prefetched attempt in its worker's queue, and those in its slots; else nothing."""
    if not attempt.is_queued:
        return ""
    queue = [number for _, number in state.index.attempts.queues.order[attempt.worker]]
    before = queue[: queue.index(attempt.id)]
    before += [one.id for one in state.index.attempts.seated_on(attempt.worker)]
    return f" (behind {_by_job(before)})" if before else " (next in its queue)"


def _by_job(attempts: Iterable[AttemptId]) -> str:
    """Return the attempts by job in words: ``3 tasks of job 5 and 1 task of job 7``, the jobs with most first."""
    counts = Counter(attempt.job for attempt in attempts).most_common()
    said = [f"{_tasks(count)} of job {job}" for job, count in counts[:_MOST_JOBS]]
    if rest := sum(count for _, count in counts[_MOST_JOBS:]):
        said.append(f"{_tasks(rest)} of other jobs")
    return " and ".join(said)


def files_of_job(scheduler: Scheduler, job: int, task: int | None = None) -> list[FileFlow]:
    """Return the large files on their way for a job, or a task of it, to each worker once; some if there are many."""
    state = scheduler.state
    asked = state.jobs.get(job)
    found = {
        (flow.sha256, flow.receiver): flow
        for worker, files in (_wanted(state, asked, task) if asked else ())
        for flow in files_coming(state, worker, files)
    }
    return list(found.values())[:_MOST_TRANSFERS_SHOWN]


def _coming(state: State, job: Job, task: int | None = None) -> list[Reason]:
    """Return reasons for the large files that live attempts of the job, or of one task of it, are waiting for."""
    found = {
        reason.detail: reason
        for worker, files in _wanted(state, job, task)
        for reason in explain_transfers(state, worker, files)
    }
    return list(found.values())[:_MOST_TRANSFERS]


def _wanted(state: State, job: Job, task: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield the worker of each live attempt of the job, or of one task of it, with the task's large files."""
    for one in state.attempts.values() if state.own(TransferMemory).carriers else ():
        if one.job == job.id and one.state in LIVE and task in (None, one.task):
            yield one.worker, known_files(state, job, one.task)


def succeeded_words(succeeded: int, total: int, failed: int) -> str:
    """Return the number of tasks that succeeded in words, with the number that failed if any did."""
    if total == 1:
        return f"its only task {'failed' if failed else 'succeeded'}"
    return f"{succeeded} of {total} tasks succeeded" + (f", {failed} failed" if failed else "")


def _tasks(count: int) -> str:
    return counted(count, "task")
