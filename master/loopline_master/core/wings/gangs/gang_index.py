"""The index of gangs: which of them have waited for how long, and which tasks may have another launch."""

from __future__ import annotations

from dataclasses import dataclass, field

from sortedcontainers import SortedSet

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.sorted_collections import Ranking
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_shared.model import AttemptId, TaskId


@dataclass(slots=True)
class GangIndex:
    """A function of the gangs, as Index is of all entities."""

    preparing: Ranking[AttemptId, tuple[float, AttemptId]] = field(default_factory=Ranking)  # (since, launch)
    halted: Ranking[AttemptId, tuple[float, AttemptId]] = field(default_factory=Ranking)
    launches: dict[TaskId, set[int]] = field(default_factory=dict)  # by task: their first attempts' numbers
    replicable: SortedSet[TaskId] = field(default_factory=SortedSet)  # whose jobs allow one launch more

    def place(self, launch: AttemptId, gang: Gang | None, job: Job) -> None:
        """Enter a launch of a job's task as it is now; None if it is no more."""
        phase = gang.phase if gang is not None else None
        since = (gang.since, launch) if gang is not None else None
        self.preparing.place(launch, since if phase is GangPhase.PREPARING else None)
        self.halted.place(launch, since if phase is GangPhase.HALTED else None)
        task = launch.task_id
        launches = self.launches.setdefault(task, set())
        (launches.discard if gang is None else launches.add)(launch.number)
        limit = job.max_attempts if job.max_replicas is None else min(job.max_replicas, job.max_attempts)
        if launches and len(launches) < limit:
            self.replicable.add(task)
        else:
            self.replicable.discard(task)
        if not launches:
            del self.launches[task]
