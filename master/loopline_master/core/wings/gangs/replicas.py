"""Replicas of gangs: one more launch of a running task, as a whole, on workers without other use.

Only jobs that ask for replicas (``max_replicas``) have them, and only under a policy that replicates. The first
launch whose members have all succeeded brings the result, and the others are ended (phases.py). A replica begins only
where it delays no plan, and is not cancelled for other work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from loopline_master.core.kernel.door.mechanism import Purpose
from loopline_master.core.kernel.entities import Job, Task, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs import launch, phases
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.gangs.planning.grid_horizons import switch_of
from loopline_master.core.wings.gangs.planning.pool import on_fewest_switches

_TASKS, _WORKERS = 4, 64
"""Limits for one step: tasks checked, the earliest jobs' first, and idle workers beyond a launch's need."""


def begin(state: State) -> Iterator[None]:
    """Launch replicas where they may begin now. Yields whenever the index must be flushed before the next."""
    for task_id in [*islice(state.own(GangMemory).index.replicable, _TASKS)]:
        job, task = state.jobs[task_id.job], state.tasks[task_id]
        if _may_have_one(state, job, task) and (workers := _workers_for(state, job, task)):
            launch.begin(state, job, task.number, workers)
            yield


def _may_have_one(state: State, job: Job, task: Task) -> bool:
    """True if all launches of the task have begun, and its limits allow one more."""
    if job.paused or not job.is_live or not state.index.may_replicate(job) or task.is_dangerous:
        return False
    launches = phases.launches_of(state, task.id)
    if not task.may_be_tried(job, len(launches)):
        return False
    return all(gang.phase is not GangPhase.PREPARING for gang in launches)


def _workers_for(state: State, job: Job, task: Task) -> list[Worker]:
    """Return idle workers for a replica, on the fewest switches; none if there are too few."""
    index, idle, free = state.index, state.index.slots.idle, defaultdict[str, list[str]](list)
    serving, taken = index.requirements.serving(job), index.attempts.of_task.get(task.id, {})
    for _, _, name in idle.order[: job.nodes + _WORKERS]:
        worker = state.workers[name]
        fits = name in serving and name not in taken and index.slots.free_slots(worker) >= job.slots
        fits = fits and index.requirements.units.is_first(name)
        if fits and state.wings.veto(job, task.number, worker, Purpose.REPLICA) is None:
            free[switch_of(worker.facts)].append(name)
    if sum(map(len, free.values())) < job.nodes:
        return []
    return [state.workers[name] for name in on_fewest_switches(free, job.nodes)]
