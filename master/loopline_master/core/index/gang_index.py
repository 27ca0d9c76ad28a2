"""The index of gangs: the slots that are kept for those that wait, and which of them have waited for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.gangs.gang import Gang, GangPhase
from loopline_master.core.index.sorted_collections import Ranking
from loopline_shared.model import TaskId


@dataclass(slots=True)
class GangIndex:
    """A function of the gangs, as Index is of all entities."""

    reserved: dict[str, int] = field(default_factory=dict)  # slots by worker, of gangs that have no members yet
    preparing: Ranking[TaskId, tuple[float, TaskId]] = field(default_factory=Ranking)  # (since, gang)
    halted: Ranking[TaskId, tuple[float, TaskId]] = field(default_factory=Ranking)
    reserving: dict[TaskId, tuple[tuple[str, ...], int]] = field(
        default_factory=dict
    )  # workers and slots of those gangs

    def place(self, task: TaskId, gang: Gang | None) -> tuple[str, ...]:
        """Enter a gang as it is now; None if it is no more. Return the workers on which slots are kept or were."""
        phase = gang.phase if gang is not None else None
        since = (gang.since, task) if gang is not None else None
        self.preparing.place(task, since if phase is GangPhase.PREPARING else None)
        self.halted.place(task, since if phase is GangPhase.HALTED else None)
        before, _ = old = self.reserving.pop(task, ((), 0))
        self._keep(*old, -1)
        if gang is None or phase is not GangPhase.RESERVED:
            return before
        self.reserving[task] = gang.workers, gang.slots
        self._keep(gang.workers, gang.slots, 1)
        return (*before, *gang.workers)

    def _keep(self, workers: tuple[str, ...], slots: int, sign: int) -> None:
        for name in workers:
            left = self.reserved.get(name, 0) + sign * slots
            if left:
                self.reserved[name] = left
            else:
                del self.reserved[name]
