"""The first phase of a launch: all members of a gang are dispatched, to be prepared at their workers."""

from __future__ import annotations

from collections.abc import Sequence

from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_shared.parallel import launch_of, rank_of
from loopline_shared.protocol.gang_messages import GangPlace


def begin(state: State, job: Job, number: int, workers: Sequence[Worker]) -> Gang:
    """Dispatch the members of a task's gang to these workers, by rank; the caller has checked that they are free.

    The order guarantee is kept as for any task: a held gang is never due (planning/live.py).
    """
    members = [lifecycle.start_attempt(state, job, number, worker) for worker in workers]
    names = tuple(worker.name for worker in workers)
    gang = Gang(job.id, number, names, job.slots, state.now, first=members[0].number)
    state.put(gang)
    return gang


def place_of(state: State, attempt: Attempt, nodes: int) -> GangPlace:
    """Return a member's place in its gang, a part of its Run."""
    gang = state.own(GangMemory).gangs[launch_of(attempt.id, nodes)]
    hosts = tuple(state.workers[name].facts.address or name for name in gang.workers)
    return GangPlace(rank_of(attempt.number, nodes), hosts, state.settings.lease_s)
