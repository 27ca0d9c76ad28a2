"""Checks of the plans of gangs, step by step. Raise AssertionError on a violation.

A promise moves back only with a recorded reason. A scheduler that is restarted from the rows makes the same plans,
broken promises and starts in the next step as the one that continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopline_master.core.events import BATCH, Batch, Event, SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.gang_wing import Gangs
from loopline_master.core.wings.gangs.planning.horizon import MARGIN_S
from loopline_master.core.wings.gangs.planning.plan import BrokenPromise, Plan
from loopline_master.core.wings.shares.shares_wing import Shares
from loopline_shared.model import TaskId
from loopline_simulator.full.store import MemoryStore

_LATE_S = MARGIN_S + 1
"""A start is late if it is later than promised by more."""


class SecondPlanner:
    """A scheduler that was started from the rows as they were before a step, and takes the same step."""

    def __init__(self, store: MemoryStore) -> None:
        self.scheduler = Scheduler(store.snapshot())

    def check(self, events: Sequence[Event], now: float, found: Effects, settings: SchedulerSettings) -> None:
        """Raise AssertionError if its plans differ from those in ``found`` of the other scheduler."""
        self.scheduler.set_policy(settings)
        state = self.scheduler.state
        state.wings[Shares].late.skip(state.grid.now)  # a real restart checks them once more, at another time
        state.wings[Gangs].planning.open()
        batch = BATCH.validate_json(BATCH.dump_json(Batch(now, list(events))))
        again = self.scheduler.step(batch.events, batch.now)
        planned, expected = (_without_reasons(one) for one in (again, found))
        assert planned == expected, f"started again it plans {planned}, not {expected}"
        ours, theirs = again.rows(Gang), found.rows(Gang)
        assert ours == theirs, f"started again it begins {ours}, not {theirs}"


def check_promises(before: Mapping[TaskId, Plan], effects: Effects) -> None:
    """Raise AssertionError if a promise among the rows ``before`` a step was moved back by it without a reason."""
    reasons = {TaskId(one.job, one.task): one.reason for one in effects.told(BrokenPromise)}
    for task, plan in effects.rows(Plan).items():
        old = before.get(task)
        if old is None or old.is_over or not old.is_promise or old.start is None or plan.withdrawn_at is not None:
            continue
        start, allowed_s = (plan.start, MARGIN_S) if plan.started_at is None else (plan.started_at, _LATE_S)
        is_kept = start is not None and start <= old.start + allowed_s and plan.is_promise
        said = f"gang {task} was promised {old.start}; now it is {plan.kind} at {start}"
        assert is_kept or reasons.get(task), f"{said}, and nothing says why"
        assert is_kept or plan.broken > old.broken, f"{said}, and that is not counted"


def _without_reasons(effects: Effects) -> list[Plan | BrokenPromise]:
    """Return the changed plans and broken promises: of several reasons, each scheduler may name another."""
    plans = [replace(plan, reason="", broken_reason="") for _, plan in sorted(effects.rows(Plan).items())]
    return [*plans, *(replace(one, reason="", number=0) for one in effects.told(BrokenPromise))]
