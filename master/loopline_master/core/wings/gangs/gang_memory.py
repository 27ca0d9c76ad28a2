"""Memory of the wing *gangs*: its launches, and the plans of waiting gangs."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.gang_index import GangIndex
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_shared.model import AttemptId


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
