"""Changes of a plan, as its row keeps them: moved forward, promise broken, estimate missed, started late."""

from __future__ import annotations

from loopline_master.core.wings.gangs.planning.horizon import MARGIN_S
from loopline_master.core.wings.gangs.planning.plan import BrokenPromise, Plan


def note_change(
    plan: Plan, old_start: float | None, now: float, reason: str, *, was_promise: bool
) -> BrokenPromise | None:
    """Note a plan's new start. Return the report of a broken promise, if any."""
    plan.changed_at, plan.reason = now, reason
    is_later = plan.start is None or (old_start is not None and plan.start > old_start + MARGIN_S)
    plan.moves += plan.start is not None and old_start is not None and plan.start < old_start
    if was_promise and old_start is not None and (is_later or not plan.is_promise):
        return _broken(plan, old_start, now, reason)
    plan.delays += is_later
    return None


def note_start(plan: Plan, now: float) -> BrokenPromise | None:
    """Note that the gang has started. Return the report of a broken promise if that was later than promised."""
    plan.started_at = now
    if plan.start is None or now <= plan.start + MARGIN_S + 1:
        return None
    if not plan.is_promise:
        plan.delays += 1
        return None
    old_start, plan.start = plan.start, now
    return _broken(plan, old_start, now, "its workers were not free in time")


def _broken(plan: Plan, old_start: float, now: float, reason: str) -> BrokenPromise:
    plan.broken += 1
    plan.broken_reason = reason
    return BrokenPromise(job=plan.job, task=plan.task, start=old_start, new_start=plan.start, reason=reason, at=now)
