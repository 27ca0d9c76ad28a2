"""Jobs in the policy's order, each with its holder.

Jobs that wait outside the grid for others to succeed come last.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_shared.rest.columns import QueuedJob


def queue(state: State) -> list[QueuedJob]:
    """Return all jobs that are not over: O(n log n), for people."""
    inside = [QueuedJob(id=job.id, held_by=_holder(state, job)) for job in _in_turn(state)]
    return [*inside, *(QueuedJob(id=job, waiting_for=list(others)) for job, others in state.index.dependents.each())]


def _in_turn(state: State) -> list[Job]:
    jobs = list(state.index.live.values())
    match state.settings.policy:
        case "round-robin":  # on from the job with the last turn, and once round
            return sorted(jobs, key=lambda job: (job.turn <= state.grid.pointer, job.turn, job.arrival))
        case "fair":
            return sorted(jobs, key=lambda job: (job.tag, job.arrival))
        case _:
            return jobs


def _holder(state: State, job: Job) -> int | None:
    """Return the job that holds this one, the earliest if there are several; None if it is not held."""
    if not state.index.is_held(job):
        return None
    first = state.index.hold_over(job).first(job.arrival, job.weight)
    return None if first is None else state.index.live[first].id
