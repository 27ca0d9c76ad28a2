"""Invariants of gangs."""

from __future__ import annotations

from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_shared.model import AttemptState, TaskState


def check_gang(state: State, gang: Gang) -> None:
    """Raises AssertionError if a gang has fewer members than its job's ``nodes``, or one in a wrong state.

    While the gang prepares no member has begun; while it runs no member is lost or held by its owner. So, as far as
    is known, no member runs while another is missing, except until the word to freeze arrives.
    """
    job, task, name = state.jobs[gang.job], state.tasks[gang.task_id].state, f"gang {gang.id} ({gang.phase})"
    assert len(set(gang.workers)) == job.nodes, f"{name} has {gang.workers}, its job needs {job.nodes}"
    members = [state.attempts.get(gang.member(rank)) for rank in range(job.nodes)]
    found = {member.worker: member.state for member in members if member is not None}
    assert list(found) == list(gang.workers), f"{name} is on {gang.workers}, its members are {found}"
    strange = {worker: one for worker, one in found.items() if one not in _MEMBERS[gang.phase]}
    assert not strange, f"{name} has members that are {strange}"
    away = {worker for worker, one in found.items() if one is AttemptState.LOST}
    assert away <= set(gang.culprits), f"{name} is halted for {gang.culprits}, but {away} are lost"
    assert (gang.phase is GangPhase.HALTED) == bool(gang.culprits), f"{name} is halted for {gang.culprits}"
    assert task is TaskState.RUNNING, f"{name} has a task that is {task}"


_BEGUN = (AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.DELIVERING, AttemptState.FINISHED)
_MEMBERS = {
    GangPhase.PREPARING: (AttemptState.DISPATCHED, AttemptState.PREPARED),
    GangPhase.RUNNING: (AttemptState.PREPARED, *_BEGUN),
    GangPhase.HALTED: (AttemptState.PREPARED, *_BEGUN, AttemptState.LOST),
}
"""States of members by the phase of their gang. While the gang runs, a frozen member has not received its word to
thaw."""
