"""The attempts in memory by task and by worker, and the role of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loopline_master.core import accounting
from loopline_master.core.entities import LIVE, OCCUPYING, SEATED, Attempt
from loopline_master.core.index.prefetched import PrefetchQueues
from loopline_shared.model import AttemptId, AttemptState, TaskId

_KEPT, _SEATED, _ALIVE, _FROZEN, _AHEAD = (1 << bit for bit in range(5))
"""Bits of a role: in memory, in a slot, alive, alive but frozen, prefetched."""
_ROLES = {
    state: _KEPT
    | (_ALIVE if state in LIVE else 0)
    | (_SEATED if state in SEATED else 0)
    | (_FROZEN if state is AttemptState.FROZEN else 0)
    | (_AHEAD if state is AttemptState.PREFETCHED else 0)
    for state in AttemptState
}


@dataclass(slots=True)
class Attempts:
    """A function of the attempts in memory, as Index is of all that is."""

    of_task: dict[TaskId, dict[str, Attempt]] = field(default_factory=dict)  # by worker: none has two of one task
    of_worker: dict[str, dict[AttemptId, Attempt]] = field(default_factory=dict)
    roles: dict[AttemptId, int] = field(default_factory=dict)  # what each counts as
    alive: dict[TaskId, int] = field(default_factory=dict)  # how many, by task
    frozen: dict[TaskId, int] = field(default_factory=dict)  # ... of them
    frozen_on: dict[str, int] = field(default_factory=dict)  # ... by worker
    reserved_ms: dict[int, int] = field(default_factory=dict)  # by job: what replicas at work are expected to take
    used: dict[str, int] = field(default_factory=dict)  # slots, by worker
    queues: PrefetchQueues = field(default_factory=PrefetchQueues)  # those that wait at workers for a slot

    def place(self, attempt: Attempt) -> bool:
        """Enter an attempt as it is now, or drop it if it is over. Return True if its role has changed.

        In that case its task must be placed, too; its worker in any case.
        """
        number = attempt.id
        old, new = self.roles.get(number, 0), _ROLES[attempt.state] if attempt.ended_at is None else 0
        changed = old ^ new
        if not changed:
            return False
        if not old:
            self._enter(attempt)
        elif not new:
            self._leave(attempt)
        if new:
            self.roles[number] = new
        if changed & _ALIVE:
            _count(self.alive, attempt.task_id, 1 if new & _ALIVE else -1)
        if changed & _SEATED:
            self._seat(attempt, 1 if new & _SEATED else -1)
        if changed & _AHEAD:
            self.queues.toggle(attempt, new & _AHEAD)
        if changed & _FROZEN:
            self._freeze(attempt, 1 if new & _FROZEN else -1)
        return True

    def is_on(self, task: TaskId, worker: str) -> bool:
        """True if an attempt of the task is on this worker."""
        attempt = self.of_task[task].get(worker) if task in self.of_task else None
        return attempt is not None and attempt.state in OCCUPYING

    def seated_on(self, worker: str) -> Iterator[Attempt]:
        """Return the attempts in its slots. As a rule they came first, so that few prefetched ones are looked at."""
        left = self.used.get(worker, 0)
        for attempt in self.of_worker[worker].values() if left else ():
            if attempt.is_seated:
                yield attempt
                left -= attempt.slots
                if left <= 0:
                    return

    def in_hand(self, worker: str) -> int:
        """Number of its slots in use and of the attempts that wait there for one."""
        queues = self.queues.of_worker
        return self.used.get(worker, 0) + (len(queues[worker]) if worker in queues else 0)

    def _seat(self, attempt: Attempt, sign: int) -> None:
        """Count the slots of an attempt as used (``sign`` 1) or as free (-1)."""
        _count(self.used, attempt.worker, sign * attempt.slots)
        if attempt.replica:
            _count(self.reserved_ms, attempt.job, sign * accounting.expected_ms(attempt))

    def _freeze(self, attempt: Attempt, change: int) -> None:
        _count(self.frozen, attempt.task_id, change)
        _count(self.frozen_on, attempt.worker, change)

    def _enter(self, attempt: Attempt) -> None:
        task, name, number = attempt.task_id, attempt.worker, attempt.id
        if task in self.of_task:
            self.of_task[task][name] = attempt
        else:
            self.of_task[task] = {name: attempt}
        if name in self.of_worker:
            self.of_worker[name][number] = attempt
        else:
            self.of_worker[name] = {number: attempt}

    def _leave(self, attempt: Attempt) -> None:
        task, name, number = attempt.task_id, attempt.worker, attempt.id
        of_task, of_worker = self.of_task[task], self.of_worker[name]
        del of_task[name], of_worker[number], self.roles[number]
        if not of_task:
            del self.of_task[task]
        if not of_worker:
            del self.of_worker[name]


def _count(counts: dict[Any, int], of: object, change: int) -> None:
    """Change a count by this much, and drop it when it reaches zero."""
    if new := counts.get(of, 0) + change:
        counts[of] = new
    elif change:
        del counts[of]
