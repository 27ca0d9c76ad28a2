"""One job's tasks, by what may be done with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Job, Task
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.intervals import Ranges
from loopline_shared.model import TaskState

_KEPT, _WAITING, _REPLICABLE, _STRANDED, _ASKED = (1 << bit for bit in range(5))
"""In memory, and in which of the pool's sets."""
_RARELY = _WAITING | _STRANDED | _ASKED
_RUNNING, _QUEUED = TaskState.RUNNING, TaskState.QUEUED


@dataclass(slots=True)
class Pool:
    """Of those that were started; the others are in State.fresh."""

    waiting: Ranges = field(default_factory=Ranges)  # started once, queued again
    replicable: Ranges = field(default_factory=Ranges)  # running, with room for a replica
    stranded: Ranges = field(default_factory=Ranges)  # of these: all that runs of them is frozen, or asked
    asked: Ranges = field(default_factory=Ranges)  # of these: the job's quorum needs another result
    kept: dict[int, int] = field(default_factory=dict)  # all that have a Task in memory, and where each stands

    def place(self, task: Task, job: Job, attempts: Attempts) -> bool:
        """Enter a task as it is now. One with votes waits among those to replicate: who has voted is barred. One that
        has failed too often is only waited for: were it copied on and on, it would never end. Whether its job may
        stand elsewhere for it, too: whoever looks at one asks of each set whether there is anything in it.
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
            self.waiting.toggle(number, stands & _WAITING)
            self.stranded.toggle(number, stands & _STRANDED)
            self.asked.toggle(number, stands & _ASKED)
            return True
        return self.replicable.count <= 1  # so it is where none is kept


def _stands(task: Task, job: Job, attempts: Attempts) -> int:
    """In which of the pool's sets the task belongs; 0: it is forgotten."""
    if task.state is not _RUNNING:
        if task.state is not _QUEUED:
            return _KEPT if task.id in attempts.of_task else 0
        if not (task.started and task.votes):
            return _KEPT | _WAITING if task.started else _KEPT
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
        return _KEPT | _REPLICABLE | _STRANDED | _ASKED
    return _KEPT | _REPLICABLE | _STRANDED if 0 < alive == frozen else _KEPT | _REPLICABLE
