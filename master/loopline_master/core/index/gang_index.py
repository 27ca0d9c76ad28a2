"""The index of gangs: which of them have waited for how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.gangs.gang import Gang, GangPhase
from loopline_master.core.index.sorted_collections import Ranking
from loopline_shared.model import TaskId


@dataclass(slots=True)
class GangIndex:
    """A function of the gangs, as Index is of all entities."""

    preparing: Ranking[TaskId, tuple[float, TaskId]] = field(default_factory=Ranking)  # (since, gang)
    halted: Ranking[TaskId, tuple[float, TaskId]] = field(default_factory=Ranking)

    def place(self, task: TaskId, gang: Gang | None) -> None:
        """Enter a gang as it is now; None if it is no more."""
        phase = gang.phase if gang is not None else None
        since = (gang.since, task) if gang is not None else None
        self.preparing.place(task, since if phase is GangPhase.PREPARING else None)
        self.halted.place(task, since if phase is GangPhase.HALTED else None)
