"""The word that each member of a gang needs: to start, to freeze, to thaw. It follows from the scheduler's belief."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Attempt, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_shared.model import AttemptState
from loopline_shared.parallel import launch_of
from loopline_shared.protocol.gang_messages import MemberOrder, Word

LEAD_S = 0.05
"""Time from the commit to the start, besides the way to the farthest worker: all read the word before one is busy."""
_LONGEST_DELAY_S = 2.0
"""Longest part of a round trip to a worker that a start waits for."""


def word_for(state: State, attempt: Attempt, worker: Worker) -> Word | None:
    """Return the word that the member needs; None if its believed state is as it should be."""
    gang = state.own(GangMemory).gangs.get(launch_of(attempt.id, state.jobs[attempt.job].nodes))
    if gang is None:
        return None
    match gang.phase, attempt.state:
        case GangPhase.RUNNING, AttemptState.PREPARED:
            left_s = gang.since + lead_s(state, gang.workers) - state.now
            delay_s = max(0.0, left_s - _one_way_s(worker))
            return Word(attempt.id, MemberOrder.START, delay_s, gang.rendezvous)
        case GangPhase.RUNNING, AttemptState.FROZEN:
            return Word(attempt.id, MemberOrder.THAW)
        case GangPhase.HALTED, AttemptState.RUNNING if attempt.worker not in gang.culprits:
            return Word(attempt.id, MemberOrder.FREEZE)
    return None


def lead_s(state: State, workers: tuple[str, ...]) -> float:
    """Return the seconds from the commit to the start: the farthest worker must have received the word by then."""
    return LEAD_S + max(_one_way_s(state.workers[name]) for name in workers)


def _one_way_s(worker: Worker) -> float:
    delay_s = worker.load.delay_s if worker.load else None
    return min(delay_s or 0.0, _LONGEST_DELAY_S) / 2
