"""Memory of the wing *gangs*: its launches, and the plans of waiting gangs."""

from __future__ import annotations

from dataclasses import dataclass, field

from sortedcontainers import SortedSet

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.sorted_collections import Ranking
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_shared.model import AttemptId, TaskId


@dataclass(slots=True)
class GangIndex:
    """Lookups of gangs, a function of the gangs."""

    preparing: Ranking[AttemptId, tuple[float, AttemptId]] = field(default_factory=Ranking)  # (since, launch)
    halted: Ranking[AttemptId, tuple[float, AttemptId]] = field(default_factory=Ranking)
    launches: dict[TaskId, set[int]] = field(default_factory=dict)  # by task: attempt number of rank 0 of each
    replicable: SortedSet[TaskId] = field(default_factory=SortedSet)  # tasks whose jobs allow one more launch

    def place(self, launch: AttemptId, gang: Gang | None, job: Job) -> None:
        """Enter a launch of a job's task as it is now; None if it no longer exists."""
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


@dataclass(slots=True)
class GangMemory:
    gangs: dict[AttemptId, Gang] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)  # by job: for its next gang
    index: GangIndex = field(default_factory=GangIndex)

    def note_gang(self, gang: Gang, job: Job, effects: Effects) -> None:
        """Store a gang as it is now, and index it at once."""
        self.gangs[gang.id] = gang
        effects.note(gang.id, gang)
        self.index.place(gang.id, gang, job)

    def note_plan(self, plan: Plan, effects: Effects) -> None:
        """Store a plan. A plan that has started or was withdrawn is forgotten, unless another has replaced it."""
        effects.note(plan.id, plan)
        if not plan.is_over:
            self.plans[plan.job] = plan
        elif plan.job in self.plans and self.plans[plan.job].id == plan.id:
            del self.plans[plan.job]


def drop_gang(state: State, gang: Gang) -> None:
    """Forget a launch that is over: its row is deleted."""
    memory = state.own(GangMemory)
    if memory.gangs.get(gang.id) is gang:
        del memory.gangs[gang.id]
        state.effects.drop(Gang, gang.id)
        memory.index.place(gang.id, None, state.jobs[gang.job])
