"""Dependencies: a job that is to come after others waits outside the grid until all of those have succeeded.

While it waits it has no arrival and takes no part in the hold. Its place among other jobs (arrival, finish tag) is
fixed as it enters. A job whose dependency failed or was cancelled goes on waiting: a retry of that job may yet
succeed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from loopline_master.core import transitions
from loopline_master.core.effects import Declined
from loopline_master.core.entities import UNRELEASED, Job
from loopline_master.core.estimates import measure
from loopline_master.core.index.intervals import IntervalSet
from loopline_master.core.state import State
from loopline_shared.model import JobState


def left_to_wait_for(
    state: State, after: Collection[int], ended: Mapping[int, JobState]
) -> tuple[int, ...] | Declined:
    """Return those of the jobs ``after`` that have yet to succeed.

    ``ended`` has the states of jobs that have left memory. For a job that is in neither, the request is declined: its
    state has to be read again.
    """
    waits_for = []
    for one in sorted(set(after)):
        found = state.jobs[one].state if one in state.jobs else ended.get(one)
        if found is None:
            return Declined(409, "changed_meanwhile", f"job {one} has changed meanwhile", "try again")
        if found is not JobState.SUCCEEDED:
            waits_for.append(one)
    return tuple(waits_for)


def enter(state: State, job: Job, waits_for: tuple[int, ...], started: IntervalSet | None = None) -> None:
    """Let a new or retried job enter the grid as the last to come, or wait for its dependencies."""
    job.waiting_for = waits_for
    if waits_for:
        _become(job, JobState.WAITING)
        job.arrival = UNRELEASED
    else:
        _take_its_place(state, job)
    if started is not None:
        state.restore(job, started)
    state.put(job)


def release_followers(state: State, job: Job) -> None:
    """Let the jobs enter the grid that waited only for this one, if it succeeded, in the order of submission."""
    if job.state is not JobState.SUCCEEDED:
        return
    for number in state.index.dependents.followers(job.id):
        follower = state.jobs[number]
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
    job.arrival, job.entered_at = state.next_sequence(), state.now
    job.tag = measure.tag_of(state.grid, job)


def _become(job: Job, new: JobState) -> None:
    if job.state is not new:
        job.state = transitions.check(transitions.JOB, job.state, new)
