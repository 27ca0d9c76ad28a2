"""Jobs that are overdrawn: they have used many times the size by which others wait for them, and hold nobody.

Only jobs that hold somebody are looked at, now and then, so that an event costs nothing more. A job stays overdrawn,
also when it is retried: its size is disproved.
"""

from __future__ import annotations

from loopline_master.core.entities import Attempt, Job
from loopline_master.core.estimates import measure
from loopline_master.core.state import State
from loopline_shared.model import AttemptState

LOOK_EVERY_S = 30.0


def looks_at(state: State) -> float:
    """Return the time at which the jobs that hold others are looked at next."""
    return state.grid.looked_at + LOOK_EVERY_S


def look(state: State) -> None:
    """Mark the jobs that hold others and have used ``overdrawn_after`` times their size."""
    times = state.settings.overdrawn_after
    if not times or not state.index.blocked or looks_at(state) > state.now:
        return
    state.grid.looked_at = state.now
    for arrival in _holders(state):
        job = state.index.live[arrival]
        if job.size is not None and used_now(state, job) > times * job.size:
            job.overdrawn = True
            job.tag = state.grid.virtual + _left(state, job)
        state.put(job)  # also where nothing has come of it: a step without effects is not in the log


def _holders(state: State) -> list[int]:
    """Return the arrivals of jobs that hold others: of those that hold one, the last to come.

    The index notes any of them, be it that another one was resumed since: a restart must not change who is looked at.
    """
    index = state.index
    held = (state.jobs[number] for number in index.blockers)
    found = {index.hold_over(job).blocker(job.arrival, job.weight) for job in held}
    return sorted(arrival for arrival in found if arrival is not None)


def used_now(state: State, job: Job) -> float:
    """Return the work of the job's tasks so far, of those that run with it, in reference CPU-seconds.

    Replicas and what was lost with its worker are the grid's doing and count for nothing.
    """
    used = job.used
    for number in state.index.ready_sets[job.id].kept:
        for attempt in state.index.attempts.of_task.get(job.task_id(number), {}).values():
            used += _used_by(state, attempt)
    return used


def _used_by(state: State, attempt: Attempt) -> float:
    if attempt.replica or attempt.state not in (AttemptState.RUNNING, AttemptState.FROZEN):
        return 0.0
    stood_s = sum((state.now if end is None else end) - begin for begin, end in attempt.freezes)
    ran_s = max(0.0, state.now - attempt.since - stood_s)
    return ran_s * measure.speed_now(state.workers[attempt.worker])


def _left(state: State, job: Job) -> float:
    """Return the work still to be expected of a job whose size is disproved: what it has used again, at least."""
    expected = measure.mean_work(state.grid, job) * (job.task_count - job.succeeded - job.failed)
    return max(expected, used_now(state, job))
