"""Overdrawn jobs: they have used many times the size by which others wait for them, and hold no other job.

Only jobs that hold others are checked, once every ``LOOK_EVERY_S``, so that an event costs no more. A job stays
overdrawn even if it is retried, because its size is disproved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState

LOOK_EVERY_S = 30.0


def next_check_at(state: State) -> float:
    """Return the time of the next check."""
    return state.grid.looked_at + LOOK_EVERY_S


def is_due(state: State, now: float) -> bool:
    """True if jobs that hold others must be checked now."""
    return bool(state.settings.overdrawn_after and state.index.blocked) and next_check_at(state) <= now


def mark_overdrawn(state: State) -> None:
    """Mark the jobs that hold others and have used ``overdrawn_after`` times their size."""
    if not is_due(state, state.now):
        return
    times = state.settings.overdrawn_after
    state.grid.looked_at = state.now
    for arrival in _holders(state):
        job = state.index.live[arrival]
        if job.size is not None and used_now(state, job) > times * job.size:
            job.overdrawn = True
            job.tag = state.grid.virtual + _left(state, job)
        state.put(job)  # even if unchanged: a step without effects is not in the log


def workers_of_holders(state: State) -> set[str]:
    """Return the workers whose last Reports decide how much work the next check counts."""
    return workers_of(state, _holders(state))


def workers_of(state: State, arrivals: Iterable[int]) -> set[str]:
    """Return the workers with attempts that count for these live jobs."""
    jobs = (state.index.live[arrival] for arrival in arrivals if arrival in state.index.live)
    return {attempt.worker for job in jobs for attempt in _at_work(state, job)}


def _holders(state: State) -> list[int]:
    """Return the arrivals of jobs that hold others: for each held job, its latest blocker.

    The index may note any of its blockers, depending on history, and a restart must not change which jobs are
    checked.
    """
    index = state.index
    held = (state.jobs[number] for number in index.blockers)
    found = {index.hold_over(job).blocker(job.arrival, job.weight) for job in held}
    return sorted(arrival for arrival in found if arrival is not None)


def used_now(state: State, job: Job) -> float:
    """Return the work done on the job's tasks, including running ones, in reference CPU-seconds.

    Replicas and attempts that were lost with their workers do not count, because the grid caused them.
    """
    used = job.used
    for attempt in _at_work(state, job):
        used += _used_by(state, attempt)
    return used


def _at_work(state: State, job: Job) -> Iterator[Attempt]:
    """Yield the running and frozen attempts that count for the job."""
    for number in state.index.ready_sets[job.id].kept:
        for attempt in state.index.attempts.of_task.get(job.task_id(number), {}).values():
            if not attempt.replica and attempt.state in (AttemptState.RUNNING, AttemptState.FROZEN):
                yield attempt


def _used_by(state: State, attempt: Attempt) -> float:
    """Return the work of an attempt up to its worker's last Report; the worker may have hung or slept since then."""
    worker = state.workers[attempt.worker]
    heard_at = min(state.now, worker.reported_at or 0.0)
    stood_s = sum(max(0.0, min(heard_at, heard_at if end is None else end) - begin) for begin, end in attempt.freezes)
    return max(0.0, heard_at - attempt.since - stood_s) * measure.speed_now(worker)


def _left(state: State, job: Job) -> float:
    """Return the expected remaining work of a job whose size is disproved: at least as much as it has used."""
    expected = measure.mean_work(state.grid, job) * (job.task_count - job.succeeded - job.failed)
    return max(expected, used_now(state, job))
