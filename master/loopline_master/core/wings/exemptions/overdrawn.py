"""Overdrawn jobs: they have used many times the size by which others wait for them, and hold no other job.

Only jobs that hold others are checked, once every ``LOOK_EVERY_S``, so that an event costs no more. The proof is the
measured work of results (``Job.counted``) and of attempts without one (``Job.proof``). A job stays overdrawn, also if
it is retried, until results show less than its proof. An attempt that is lost shows nothing else, so it stays a part
of the proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Attempt, Job, MeasuredWork
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState

LOOK_EVERY_S = 30.0
_MOST_ATTEMPTS = 256
"""Largest number of attempts in a proof."""


def next_check_at(state: State) -> float:
    """Return the time of the next check."""
    return state.grid.looked_at + LOOK_EVERY_S


def is_due(state: State, now: float) -> bool:
    """True if jobs that hold others must be checked now."""
    return bool(state.settings.overdrawn_after and state.index.blocked) and next_check_at(state) <= now


def mark_overdrawn(state: State) -> Iterator[Job]:
    """Mark the jobs that hold others and have used ``overdrawn_after`` times their size, and yield them."""
    state.grid.looked_at = state.now
    for arrival in _holders(state):
        job = state.index.live[arrival]
        largest = tuple(nlargest(_MOST_ATTEMPTS, _measured(state, job), key=lambda one: (one.work, -one.task)))
        if proves(state, job, largest):
            job.overdrawn, job.proof = True, largest
            job.tag = state.grid.virtual + _left(state, job)
            yield job
        state.put(job)  # even if unchanged: a step without effects is not in the log


def proves(state: State, job: Job, attempts: Iterable[MeasuredWork]) -> bool:
    """True if the results of the job and these attempts show ``overdrawn_after`` times its size."""
    times = state.settings.overdrawn_after
    if not times or job.size is None:
        return False
    return job.counted + sum(one.work for one in attempts) > times * job.size


def reconsider(state: State, job: Job, attempt: Attempt) -> bool:
    """Replace a part of the proof by a result that has come. Return True if the job is no longer overdrawn.

    The accepted result of a task stands for all of its attempts.
    """
    job.proof = tuple(
        one
        for one in job.proof
        if one.task != attempt.task or not (attempt.accepted or one.attempt == attempt.number)
    )
    return clear_unless_proven(state, job)


def clear_unless_proven(state: State, job: Job) -> bool:
    """Let the job hold others again unless its proof still suffices. Return True if it holds them again."""
    if proves(state, job, job.proof):
        return False
    job.overdrawn, job.proof, job.tag = False, (), measure.tag_of(state.grid, job)
    return True


def workers_of_holders(state: State) -> set[str]:
    """Return the workers whose last Reports decide how much work the next check counts."""
    return workers_of(state, _holders(state))


def workers_of(state: State, arrivals: Iterable[int]) -> set[str]:
    """Return the workers with attempts that count for these live jobs."""
    jobs = (state.index.live[arrival] for arrival in arrivals if arrival in state.index.live)
    return {attempt.worker for job in jobs for attempt in _at_work(state, job)}


def first_holders(state: State) -> Mapping[int, list[Job]]:
    """Return the held jobs by the arrival of the first job that holds them, and is not held itself."""
    index, holders = state.index, defaultdict[int, list[Job]](list)
    for number in sorted(index.blockers):
        job = state.jobs[number]
        while (arrival := index.hold_over(job).first(job.arrival, job.weight)) is not None:
            job = index.live[arrival]  # at most twice, as the relation is transitive
        holders[job.arrival].append(state.jobs[number])
    return holders


def _holders(state: State) -> list[int]:
    """Return the arrivals of the jobs to be checked: the first and the latest of each held job's holders.

    The index may note any of its blockers, depending on history, and a restart must not change which jobs are
    checked.
    """
    index, first = state.index, first_holders(state)
    held = (job for jobs in first.values() for job in jobs)
    latest = {index.hold_over(job).blocker(job.arrival, job.weight) for job in held}
    return sorted({*first, *(arrival for arrival in latest if arrival is not None)})


def used_now(state: State, job: Job) -> float:
    """Return the work done on the job's tasks, including running ones, in reference CPU-seconds.

    Replicas and attempts that were lost with their workers do not count, because the grid caused them.
    """
    return job.counted + sum(one.work for one in _measured(state, job))


def _measured(state: State, job: Job) -> Iterator[MeasuredWork]:
    """Yield the work of the job's attempts, up to each worker's last Report: it may have hung or slept since then."""
    for attempt in _at_work(state, job):
        worker = state.workers[attempt.worker]
        heard_at = min(state.now, worker.reported_at or 0.0)
        yield MeasuredWork(
            attempt.task,
            attempt.number,
            worker.name,
            seconds=measure.worked_s(attempt, heard_at),
            speed=measure.credible_speed(worker),
            heard_at=heard_at,
        )


def _at_work(state: State, job: Job) -> Iterator[Attempt]:
    """Yield the running and frozen attempts that count for the job."""
    for number in state.index.ready_sets[job.id].kept:
        for attempt in state.index.attempts.of_task.get(job.task_id(number), {}).values():
            if not attempt.replica and attempt.state in (AttemptState.RUNNING, AttemptState.FROZEN):
                yield attempt


def _left(state: State, job: Job) -> float:
    """Return the expected remaining work of a job whose size is disproved: at least as much as it has used."""
    expected = measure.mean_work(state.grid, job) * (job.task_count - job.succeeded - job.failed)
    return max(expected, used_now(state, job))
