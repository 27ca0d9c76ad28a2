"""The ready set of a job: its tasks by what may be done with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Job, Task
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.intervals import IntervalSet
from loopline_shared.model import TaskState

_KEPT, _TO_RETRY, _REPLICABLE, _STALLED, _UNDER_REPLICATED = (1 << bit for bit in range(5))
"""Bits of a task: in memory, and a member of each set of the ready set."""
_RARELY = _TO_RETRY | _STALLED | _UNDER_REPLICATED
_RUNNING, _QUEUED = TaskState.RUNNING, TaskState.QUEUED


@dataclass(slots=True)
class ReadySet:
    """Started tasks of one job; those never started are in State.fresh."""

    to_retry: IntervalSet = field(default_factory=IntervalSet)  # started once, queued again
    replicable: IntervalSet = field(default_factory=IntervalSet)  # running, with room for a replica
    stalled: IntervalSet = field(default_factory=IntervalSet)  # of these: all their attempts are frozen, or the below
    under_replicated: IntervalSet = field(default_factory=IntervalSet)  # of these: a quorum needs more
    kept: dict[int, int] = field(default_factory=dict)  # all that have a Task in memory, and where each stands

    def place(self, task: Task, job: Job, attempts: Attempts) -> bool:
        """Enter a task as it is now. Return True if its job must be placed anew, too.

        That is so if a set may have become empty or non-empty: a job's places depend on nothing else here. A
        queued task with votes is replicable, for its voters are barred. A task that has failed too often gets no more
        attempts beside those that run: with ever new replicas it would never end.
        """
        number, stands = task.number, _stands(task, job, attempts)
        changed = stands ^ self.kept.get(number, 0)
        if not changed:
            return False
        if stands:
            self.kept[number] = stands
        else:
            del self.kept[number]
        if changed & _REPLICABLE:
            (self.replicable.add if stands & _REPLICABLE else self.replicable.discard)(number)
        if changed & _RARELY:
            self.to_retry.toggle(number, stands & _TO_RETRY)
            self.stalled.toggle(number, stands & _STALLED)
            self.under_replicated.toggle(number, stands & _UNDER_REPLICATED)
            return True
        return self.replicable.count <= 1  # so it is where none is kept


def _stands(task: Task, job: Job, attempts: Attempts) -> int:
    """Return the bits of the sets in which the task belongs; 0 if it is to be forgotten."""
    if task.state is not _RUNNING:
        if task.state is not _QUEUED:
            return _KEPT if task.id in attempts.of_task else 0
        if not (task.started and task.votes):
            return _KEPT | _TO_RETRY if task.started else _KEPT
    alive, limit = attempts.alive.get(task.id, 0), job.max_replicas
    if limit is not None and alive >= limit:
        return _KEPT
    if (task.failures or task.votes) and task.setbacks >= job.max_attempts:
        return _KEPT
    if task.took_down and task.is_dangerous:
        return _KEPT
    if job.quorum is None and not attempts.frozen:
        return _KEPT | _REPLICABLE
    frozen, quorum = attempts.frozen.get(task.id, 0), job.quorum
    if quorum is not None and task.agreeing + alive - frozen < quorum:
        return _KEPT | _REPLICABLE | _STALLED | _UNDER_REPLICATED
    return _KEPT | _REPLICABLE | _STALLED if 0 < alive == frozen else _KEPT | _REPLICABLE
