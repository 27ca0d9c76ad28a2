"""Changes of jobs, tasks and attempts, used by reconciling, placing and requests.

The first result wins: it ends its task, and every other attempt of the task is cancelled. A task's own failure uses
up one of its job's ``max_attempts``; the loss of a worker or its owner's claim uses up none. Agents that died while
the task ran are counted separately (wings/trust).
"""

from __future__ import annotations

from loopline_master.core.estimates import measure
from loopline_master.core.estimates.observed_results import compare_run_time, learn
from loopline_master.core.kernel import transitions
from loopline_master.core.kernel.entities import LIVE, UNSEATED, Attempt, Job, Task, Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, Outcome, Phases, Result, TaskId, TaskState

MAX_RETRY_DELAY_S = 3600.0
"""A job's ``retry_delay_s`` doubles with each failure of a task up to this, unless it is longer itself."""
RUNNING, SUCCEEDED = TaskState.RUNNING, TaskState.SUCCEEDED
DISPATCHED, PREFETCHED, SUCCEEDED_ATTEMPT = AttemptState.DISPATCHED, AttemptState.PREFETCHED, AttemptState.SUCCEEDED
QUEUED_JOB, SUCCESS = JobState.QUEUED, Outcome.SUCCEEDED
IN_QUARANTINE = "its worker is in quarantine, and it had not begun"


def start_attempt(state: State, job: Job, number: int, worker: Worker, *, ahead: bool = False) -> Attempt:
    """Dispatch a new attempt at a task; it is sent when the frames of the step are sealed.

    ``ahead``: prefetch it, to wait at the worker for a slot.
    """
    grid, index, task = state.grid, state.index, state.tasks.get(job.task_id(number)) or Task(job.id, number)
    is_last_fresh = not task.started and state.fresh[job.id].count == 1
    if job.id < grid.restored_jobs:
        skipped = -(-grid.attempts_skipped // job.nodes) * job.nodes  # whole launches: ranks follow from numbers
        task.attempts = max(task.attempts, skipped)
    task.attempts += 1
    work = measure.work_of(grid, job, number)
    for begins in state.wings.begins:
        work = max(0.0, work - begins(job, AttemptId(job.id, number, task.attempts), worker))
    attempt = Attempt(
        job.id,
        number,
        task.attempts,
        worker.name,
        job.slots_on(worker),
        task.id in index.attempts.alive and (job.nodes == 1 or state.lead.has_launch(task.id)),
        grid.now,
        PREFETCHED if ahead else DISPATCHED,
        work / (measure.speed_for(worker, job, state.programs) * job.nodes),
        job.quorum is not None and number in index.ready_sets[job.id].under_replicated,
    )
    grid.last_start, grid.last_worker = grid.now, worker.name
    if not task.started:
        _start_task(state, job, task)
    if is_last_fresh and job.order is not Order.DELIVER:
        job.released_at = state.grid.now
    _set_task(job, task, RUNNING)
    state.put(job, task, attempt)
    return attempt


def finish_attempt(state: State, attempt: Attempt, result: Result) -> None:
    """Process the result of an attempt. If its task is already over, the result is discarded."""
    task, job = state.tasks[attempt.task_id], state.jobs[attempt.job]
    blamed: list[Worker] = []
    if attempt.assumed_cpu_ms:
        measure.undo_assumed_loss(job, attempt)
    record(state, attempt, result, transitions.END[result.outcome])
    has_succeeded = attempt.state is SUCCEEDED_ATTEMPT
    is_late = compare_run_time(state, job, attempt)
    if not task.is_open:
        ended(state, job, task, attempt, took_down=result.took_down)
        measure.account(job, task, attempt, result.outcome)
        state.put(job, attempt)
    elif has_succeeded:
        blamed = _count_result(state, job, task, attempt)
    else:
        if attempt.state is AttemptState.FAILED:
            task.failures += 1
            if job.spec.retry_delay_s:
                task.retry_at = state.now + retry_delay_s(job, task.failures)
            attempt.work = measure.work_done(state.workers[attempt.worker], attempt)
            job.used += attempt.work
            job.counted += measure.credible_work(state.workers[attempt.worker], attempt.work)
        blamed = ended(state, job, task, attempt, took_down=result.took_down)
        measure.account(job, task, attempt, result.outcome)
        state.put(job, attempt, task)
        if ends_task(job, result):
            end_task(state, job, task, TaskState.FAILED)
        else:
            reconsider_task(state, task)
    for worker in blamed:
        retract_from(state, worker, IN_QUARANTINE)
    if is_late:
        for take_in in state.wings.overtaken:
            take_in(state.workers[attempt.worker])


def ended(
    state: State, job: Job, task: Task, attempt: Attempt, *, took_down: bool = False, is_slow: bool = False
) -> list[Worker]:
    """Call the wings at an attempt's end. Return the workers that get no new work from now on."""
    return [worker for tell in state.wings.attempt_ended for worker in tell(job, task, attempt, took_down, is_slow)]


def ends_task(job: Job, result: Result) -> bool:
    """True if other attempts would fail as well. A quorum needs more than one worker's word for that."""
    return result.is_final and result.outcome is Outcome.FAILED and job.nodes == 1 and job.quorum is None


def _count_result(state: State, job: Job, task: Task, attempt: Attempt) -> list[Worker]:
    """Accept the first result of a task, unless a wing requires more results.

    Return the workers that get no new work from now on.
    """
    is_decided, is_slow = True, False
    for decides in state.wings.decides:
        is_decided &= decides(job, task, attempt)
    if is_decided:
        attempt.accepted, task.winner = True, attempt.number
        is_slow = learn(state, job, attempt)
    if job.quorum is None:
        measure.account(job, task, attempt, SUCCESS)
    if not is_decided:
        state.put(attempt, job, task)
        reconsider_task(state, task)
        return []
    blamed = ended(state, job, task, attempt, is_slow=is_slow)
    end_task(state, job, task, SUCCEEDED, winner=attempt)
    return blamed


def lose_attempt(state: State, attempt: Attempt, reason: str, *, for_good: bool) -> None:
    """Mark an attempt as lost, because its worker fell silent or, ``for_good``, no longer has it.

    After silence it may come back while its task is open (adopt_attempt, finish_attempt): it has not ended. An
    attempt that holds units, or has a term, has not ended either, even if its task has: it may still be running.
    """
    mark_lost(state, attempt, reason, for_good=for_good or not may_come_back(state, attempt))
    reconsider_task(state, state.tasks[attempt.task_id])


def may_come_back(state: State, attempt: Attempt) -> bool:
    """True if it matters that an attempt of a silent worker may still be running."""
    return state.tasks[attempt.task_id].is_open or _counts_on(state.jobs[attempt.job], attempt)


def _counts_on(job: Job, attempt: Attempt) -> bool:
    """True if it matters, beyond the end of its task, that the attempt may still be running."""
    return job.holds_units or attempt.term_s is not None


def lose(state: State, attempt: Attempt, reason: str, *, for_good: bool) -> None:
    """Mark an attempt as lost; if its job has several nodes, the lead does it."""
    if state.jobs[attempt.job].nodes > 1:
        state.lead.lose(attempt, reason, for_good=for_good)
    else:
        lose_attempt(state, attempt, reason, for_good=for_good)


def mark_lost(state: State, attempt: Attempt, reason: str, *, for_good: bool) -> None:
    """Mark an attempt as lost without changing its task."""
    if attempt.state is not AttemptState.LOST:
        attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, AttemptState.LOST)
        _assume_lost(state, attempt)
    attempt.reason, attempt.sent = reason, 0
    attempt.thaw(state.grid.now)
    attempt.ended_at = state.grid.now if for_good else None
    state.put(attempt)


def adopt_attempt(state: State, attempt: Attempt, ran_s: float = 0.0, *, is_delivering: bool = False) -> None:
    """Take a lost attempt back as running or delivering; cancel it if its task has reached its limits since then.

    If it has done more work in ``ran_s`` than the attempt that replaced it, that one is cancelled instead. An attempt
    with a term is always cancelled: its worker is about to end it, and the master to hand its units on. A member of a
    gang that did not wait for it is cancelled, too.
    """
    task, job = state.tasks[attempt.task_id], state.jobs[attempt.job]
    retract_task(state, task.id, "its task runs elsewhere after all")
    alive = state.index.attempts.alive.get(task.id, 0)
    has_room = task.is_open and (job.max_replicas is None or alive < job.max_replicas)
    has_room = has_room and task.may_be_tried(job, alive)
    recalled = _recalled(job, attempt, is_delivering=is_delivering)
    if not (has_room or recalled) and ran_s and (behind := _behind(state, job, task, attempt, ran_s)):
        cancel_attempt(state, behind, f"attempt {attempt.number}, which it replaced, is back and further ahead")
        has_room = True
    attempt.reason = ""
    measure.undo_assumed_loss(job, attempt)
    state.put(job)
    if recalled or not has_room:
        new = AttemptState.RETRACTING if is_delivering else AttemptState.CANCELLING
        _call_back(state, attempt, new, recalled or "replaced while it was lost")
        reconsider_task(state, task)
        return
    new = AttemptState.FROZEN if attempt.stands_still else AttemptState.RUNNING
    if is_delivering:
        new = AttemptState.DELIVERING
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, new)
    attempt.started_at = attempt.started_at or state.grid.now
    _set_task(job, task, TaskState.RUNNING)
    state.put(job, task, attempt)


def _recalled(job: Job, attempt: Attempt, *, is_delivering: bool) -> str:
    """Return why a lost attempt must end although its task has room for it; empty if nothing speaks against it."""
    if job.nodes > 1:
        return "its gang did not wait for it"
    is_fenced = attempt.term_s is not None and not is_delivering
    return "its worker was silent for its whole term" if is_fenced else ""


def _behind(state: State, job: Job, task: Task, attempt: Attempt, ran_s: float) -> Attempt | None:
    """Return the only live attempt at a task if a lost one has done more work, in ``ran_s`` of run time."""
    others = [one for one in state.index.attempts.of_task.get(task.id, {}).values() if one.state in LIVE]
    if len(others) != 1 or job.quorum is not None or job.holds_units or attempt.stands_still:
        return None
    if others[0].state is AttemptState.DELIVERING:  # it has ended: no belief about speeds counts
        return None
    ran_s = min(ran_s, state.now - attempt.dispatched_at)
    done, theirs = (
        measure.done_by(one, state.workers[one.worker], seconds)
        for one, seconds in ((attempt, ran_s), (others[0], measure.worked_s(others[0], state.now)))
    )
    return others[0] if task.is_open and done > theirs else None


def cancel_attempt(state: State, attempt: Attempt, reason: str) -> None:
    """Cancel an attempt that is no longer needed; the step's frames carry the cancel."""
    takes_no_slot = attempt.state is PREFETCHED or attempt.state is AttemptState.DELIVERING
    new = AttemptState.RETRACTING if takes_no_slot else AttemptState.CANCELLING
    _call_back(state, attempt, new, reason)


def retract_lost(state: State, attempt: Attempt, reason: str) -> None:
    """Retract a lost attempt that turns out to wait at its worker, where it takes up no slot."""
    _call_back(state, attempt, AttemptState.RETRACTING, reason)


def _call_back(state: State, attempt: Attempt, new: AttemptState, reason: str) -> None:
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, new)
    attempt.reason, attempt.sent = reason, 0
    state.put(attempt)


def retract_task(state: State, task: TaskId, reason: str) -> None:
    """Retract all prefetched attempts of a task that runs elsewhere, or is about to run."""
    others = state.index.attempts.of_task.get(task)
    for attempt in list(others.values()) if others else ():
        if attempt.is_queued:
            cancel_attempt(state, attempt, reason)


def retract_attempt(state: State, attempt: Attempt, reason: str) -> None:
    """Cancel an attempt without a result; its task is queued again, unless it runs elsewhere."""
    cancel_attempt(state, attempt, reason)
    reconsider_task(state, state.tasks[attempt.task_id])


def retract_from(state: State, worker: Worker, reason: str) -> None:
    """Retract all prefetched attempts of a worker."""
    for attempt_id in list(state.index.attempts.queues.of_worker.get(worker.name, ())):
        retract_attempt(state, state.attempts[attempt_id], reason)


def clear(state: State, worker: Worker, reason: str) -> None:
    """Cancel all attempts in slots of a worker; their tasks are queued again. Gangs continue: their parts depend on
    one another.
    """
    for attempt in list(state.index.attempts.seated_on(worker.name)):
        if attempt.state in LIVE and state.jobs[attempt.job].nodes == 1:
            retract_attempt(state, attempt, reason)


def retract_job(state: State, job: Job, reason: str) -> None:
    """Retract all prefetched attempts of a job."""
    for number in list(state.index.ready_sets[job.id].kept):
        for attempt in list(state.index.attempts.of_task.get(job.task_id(number), {}).values()):
            if attempt.is_queued:
                retract_attempt(state, attempt, reason)


def close_attempt(state: State, attempt: Attempt) -> None:
    """End a cancelled attempt that is gone from its worker without a result."""
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, AttemptState.CANCELLED)
    attempt.ended_at = state.grid.now
    attempt.thaw(state.grid.now)
    _assume_lost(state, attempt)
    state.put(attempt)


def complete_next(state: State) -> Job | None:
    """Complete the first job whose tasks are all over and return it; None if there is none.

    Under order *deliver* the job must also not be held.
    """
    complete = state.index.complete.starts
    if not complete:
        return None
    job = state.index.live[complete[0]]
    if job.order is Order.DELIVER:
        job.released_at = state.grid.now
    state.effects.completed.append(job.id)
    _depart(state, job, JobState.FAILED if job.failed else JobState.SUCCEEDED)
    return job


def cancel_job(state: State, job: Job, reason: str) -> None:
    """Cancel a job that has no gangs left: it leaves the grid at once, and its attempts are cancelled."""
    for number in list(state.index.ready_sets[job.id].kept):
        task = state.tasks[job.task_id(number)]
        if task.is_open:
            end_task(state, job, task, TaskState.CANCELLED, reason)
    _depart(state, job, JobState.CANCELLED)


def retry_delay_s(job: Job, failures: int) -> float:
    """Return the delay after this many failures of a task, the latest included."""
    first_s = job.spec.retry_delay_s or 0.0
    return min(first_s * 2.0 ** min(failures - 1, 32), max(first_s, MAX_RETRY_DELAY_S))


def end_delays(state: State) -> None:
    """Let the tasks be tried again whose delay after a failure is over."""
    for at, number in list(state.index.delayed.order):
        if at > state.now:
            return
        task = state.tasks[number]
        task.retry_at = None
        state.put(task)


def reconsider_task(state: State, task: Task) -> None:
    """Handle an attempt's end without success: wait for another attempt, queue the task again, or fail it."""
    if not task.is_open or task.id in state.index.attempts.alive or state.lead.has_launch(task.id):
        return
    job = state.jobs[task.job]
    verdict = next((said for judge in state.wings.verdict if (said := judge(job, task)) is not None), None)
    if verdict is not None or task.setbacks >= job.max_attempts:
        task.verdict = verdict or ""
        end_task(state, job, task, TaskState.FAILED)
        return
    _set_task(job, task, TaskState.QUEUED)
    state.put(task, job)


def _assume_lost(state: State, attempt: Attempt) -> None:
    job = state.jobs[attempt.job]
    measure.assume_lost(job, attempt, state.workers[attempt.worker])
    state.put(job)


def end_task(
    state: State, job: Job, task: Task, end: TaskState, reason: str = "", *, winner: Attempt | None = None
) -> None:
    """End a task: cancel its other live attempts, and give up its lost ones.

    ``winner``: the attempt that brought the result, not yet put.
    """
    _set_task(job, task, end)
    if job.size is None and state.fresh[job.id].count < 2:
        weigh(state, job)
    task.finished_at = state.grid.now
    for take_in in state.wings.task_ended:
        take_in(job, task)
    if winner is None:
        state.put(job, task)
    else:
        state.put(winner, job, task)
    others = state.index.attempts.of_task.get(task.id)
    if not others:
        return
    reason = reason or f"attempt {task.winner} brought the result first"
    for attempt in list(others.values()):
        if attempt.state in LIVE:
            cancel_attempt(state, attempt, reason)
        elif attempt.state is AttemptState.LOST and not _counts_on(job, attempt):
            attempt.ended_at = state.grid.now
            state.put(attempt)


def _depart(state: State, job: Job, end: JobState) -> None:
    job.state = transitions.check(transitions.JOB, job.state, end)
    job.finished_at, job.departure = state.grid.now, state.next_sequence()
    job.starved_since, job.stalled, job.paused, job.waiting_for, job.reserved = None, False, False, (), ""
    state.departed.append(job)
    state.put(job)


def _start_task(state: State, job: Job, task: Task) -> None:
    task.started = True
    if task.started_at is None:
        task.started_at = state.grid.now
    fresh = state.fresh[job.id]
    fresh.discard(task.number)
    if job.size is None and fresh.count < 2:
        weigh(state, job)
    if job.state is QUEUED_JOB:
        job.state = transitions.check(transitions.JOB, job.state, JobState.RUNNING)
        if job.started_at is None:
            job.started_at = state.grid.now


def weigh(state: State, job: Job) -> None:
    """Weigh a job without a size by measurements of its tasks, once only its last task or its delivery is left.

    The weight only falls, so every job that held it back before may still do so.
    """
    is_at_last = job.is_computed if job.order is Order.DELIVER else state.fresh[job.id].count <= 1
    if is_at_last and (weight := measure.weight_shown(job)) is not None:
        job.shown = weight if job.shown is None else min(job.shown, weight)


def _set_task(job: Job, task: Task, new: TaskState) -> None:
    """Change a task's state and its job's counts together."""
    old = task.state
    if old is new:
        return
    if old is RUNNING:
        job.running -= 1
    if new is RUNNING:
        job.running += 1
    elif new is SUCCEEDED:
        job.succeeded += 1
    elif new is TaskState.FAILED:
        job.failed += 1
    task.state = transitions.check(transitions.TASK, old, new)


def _note_slot(attempt: Attempt, result: Result, now: float) -> None:
    """Note the slot and when it was taken. The earlier of two estimates is closer: its message travelled faster."""
    attempt.slot, phases = result.slot, result.phases
    ago_s = max(phases.ended_s, phases.delivered_s) if phases else result.wall_s
    began_at = max(attempt.dispatched_at, now - ago_s)
    attempt.started_at = began_at if attempt.started_at is None else min(attempt.started_at, began_at)


def _note_phases(attempt: Attempt, phases: Phases) -> None:
    attempt.phases, attempt.fetch_s = phases, phases.inputs_s
    attempt.frozen_s, attempt.deliver_s = phases.frozen_s, phases.deliver_s


def record(state: State, attempt: Attempt, result: Result, end: AttemptState) -> None:
    """Note the end of an attempt: its final state and its result."""
    has_begun = result.wall_s or attempt.state not in UNSEATED
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, end)
    if result.slot:
        _note_slot(attempt, result, state.grid.now)
    elif not attempt.started_at and has_begun:
        began_at = state.grid.now - result.wall_s
        attempt.started_at = began_at if began_at > attempt.dispatched_at else attempt.dispatched_at
    if result.phases is not None:
        _note_phases(attempt, result.phases)
    attempt.ended_at = state.grid.now
    if attempt.freezes:
        attempt.thaw(state.grid.now)
    attempt.exit_code, attempt.reason = result.exit_code, result.reason or attempt.reason
    attempt.wall_s, attempt.cpu_s, attempt.system_s = result.wall_s, result.cpu_s, result.system_s
    attempt.peak_memory_bytes = result.peak_memory_bytes
    attempt.stdout, attempt.stderr, attempt.value = result.stdout, result.stderr, result.value
    attempt.outputs = result.outputs or None
    attempt.metrics, attempt.joules = result.metrics, result.joules
