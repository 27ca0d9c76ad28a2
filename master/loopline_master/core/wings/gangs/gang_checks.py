"""Invariants of gangs."""

from __future__ import annotations

from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_shared.model import AttemptState, TaskState


def check_gang(state: State, gang: Gang) -> None:
    """Raises AssertionError if a gang has fewer members than its job's ``nodes``, or one that does what it must not.

    While it prepares no member has begun; while it runs none is lost or held by its owner. So no member of a gang
    runs of which another is missing, as far as is known, but for as long as the word to freeze is on its way.
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
"""States of members by the phase of their gang: frozen while it runs, a member has yet to hear that it may go on."""
