"""The jobs in the grid in the order in which the policy comes to them, and what holds each; after them those that
wait outside it for others to succeed.
"""

from __future__ import annotations

from loopline_master.core.entities import Job
from loopline_master.core.state import State
from loopline_shared.rest.columns import QueuedJob


def queue(state: State) -> list[QueuedJob]:
    """All that are not over: O(n log n), for people."""
    inside = [QueuedJob(id=job.id, held_by=_holder(state, job)) for job in _in_turn(state)]
    return [*inside, *(QueuedJob(id=job, waiting_for=list(others)) for job, others in state.index.dependents.each())]


def _in_turn(state: State) -> list[Job]:
    jobs = list(state.index.live.values())
    match state.settings.policy:
        case "round-robin":  # on from the job whose turn was last, and once round
            return sorted(jobs, key=lambda job: (job.arrival <= state.grid.pointer, job.arrival))
        case "fair":
            return sorted(jobs, key=lambda job: (job.tag, job.arrival))
        case _:
            return jobs


def _holder(state: State, job: Job) -> int | None:
    """The job that keeps its last task back, of several the one that came first, as explain says."""
    if not state.index.is_held(job):
        return None
    first = state.index.hold.first(job.arrival, job.weight)
    return None if first is None else state.index.live[first].id
