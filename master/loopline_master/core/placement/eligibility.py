"""Which task may be started on which worker now. The scheduler checks every proposal of a policy by these rules."""

from __future__ import annotations

from loopline_master.core.entities import Job, Worker
from loopline_master.core.state import State


def fits(state: State, job: Job, worker: Worker) -> bool:
    """True if the worker meets the job's requirements and has the slots of one task free."""
    index = state.index
    free = index.slots.idle.keys.get(worker.name)
    return free is not None and -free[0] >= job.slots and index.requirements.fits(job, worker)


def may_start(state: State, job: Job, task: int, worker: Worker) -> bool:
    """True if the task may be started or replicated on this worker now. The hold is checked apart."""
    index = state.index
    if not job.is_live or job.paused or not fits(state, job, worker):
        return False
    if task not in state.fresh[job.id]:
        if task not in index.ready_sets[job.id].to_retry and task not in index.to_replicate(job):
            return False
        if index.on_worker(job.task_id(task), worker.name):
            return False
    return worker.standing >= 0 or not should_go_elsewhere(state, job, task, worker)


def should_go_elsewhere(state: State, job: Job, task: int, worker: Worker) -> bool:
    """True if the task failed on this unhealthy worker and there is another healthy candidate for it.

    Running it there tells whether the task or the machine is at fault.
    """
    if worker.standing >= 0:
        return False
    known = state.tasks.get(job.task_id(task))
    if known is None or worker.name not in known.failed_on:
        return False
    barred = {*known.failed_on, *state.index.voters.get(known.id, ())}
    return any(name not in barred for name in state.index.requirements.trusted[state.index.requirements.key_of(job)])
