"""Certainty of a plan: decides whether it is a promise, and gives the median of an estimate.

A plan is a promise if it holds even though no work without a limit ever ends, whether it runs or is planned to start
before, and no plan that is only an estimate ever starts: then all the work ahead of it is over by its limits. Before
a promise, an ordinary task or a gang may start first only if it is over by its limit; before an estimate it is enough
that the p90 of its forecast is (backfill).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from loopline_master.core.wings.gangs.planning.horizon import Horizon
from loopline_master.core.wings.gangs.planning.plan import Plan, PlanKind, WaitingGang, steps_of


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another plan on one of a gang's workers."""

    start: int
    end: int
    half: int  # median of its end
    slots: int
    is_promise: bool
    is_limited: bool  # by its user; otherwise it may run for ever

    def is_surely_there(self, at: int) -> bool:
        """True if it has started at this time, if it ever does, and may not be over."""
        return self.start <= at and (at < self.end or not self.is_limited)


Around = Sequence[tuple[Horizon, Sequence[Neighbour]]]
"""Horizon of each worker of a plan, and the other plans there."""


def judge(plan: Plan, one: WaitingGang, start: int | None, around: Around, now: float) -> bool:
    """Set the kind of a gang's plan, and the quantiles of an estimate; True if they have changed."""
    before = (plan.kind, plan.p50, plan.p90)
    if start is None:
        plan.kind, plan.p50, plan.p90 = PlanKind.ESTIMATE, None, None
    elif is_certain(plan, one, start, around):
        plan.kind, plan.p50, plan.p90 = PlanKind.PROMISE, None, None
        plan.promised = float(start) if plan.promised is None else plan.promised
    elif not plan.is_promise or now in (plan.changed_at, plan.told_at):
        half = max(half_way(horizon, neighbours, start, one.slots) for horizon, neighbours in around)
        half = min(max(half, int(now), int(one.half)), start)
        plan.kind, plan.p50, plan.p90 = PlanKind.ESTIMATE, float(half), float(start)
    return before != (plan.kind, plan.p50, plan.p90)


def is_certain(plan: Plan, one: WaitingGang, start: int, around: Around) -> bool:
    """True if a gang with a plan is certain to find its slots free at ``start``."""
    between = (start, start + steps_of(plan.limit_s))
    return one.is_bounded and all(stands(horizon, others, between, one.slots) for horizon, others in around)


def delays_a_promise(around: Around, start: int, slots: int) -> bool:
    """True if slots taken from ``start`` on, perhaps for ever, may delay promises on these workers."""
    mine = Neighbour(start, start, start, slots, is_promise=False, is_limited=False)
    return any(
        not stands(
            horizon, [mine, *(other for other in neighbours if other is not one)], (one.start, one.end), one.slots
        )
        for horizon, neighbours in around
        for one in neighbours
        if one.is_promise and one.end > start
    )


def stands(horizon: Horizon, neighbours: Sequence[Neighbour], between: tuple[int, int], slots: int) -> bool:
    """True if ``slots`` of a worker are certain to be free throughout ``between``, if work keeps to its limits."""
    start, end = between
    counted = [one for one in neighbours if one.is_promise or not one.is_limited]
    times = [start, *(one.start for one in counted if start < one.start < end)]
    return all(
        horizon.certain(at) - sum(one.slots for one in counted if one.is_surely_there(at)) >= slots for at in times
    )


def half_way(horizon: Horizon, neighbours: Iterable[Neighbour], start: int, slots: int) -> int:
    """Return the median of the time when ``slots`` of a worker become free for a plan that starts at ``start``."""
    ends = [(one.half, one.slots) for one in horizon.busy]
    ends += [(one.half, one.slots) for one in neighbours if one.start < start]
    free, at = horizon.slots - sum(slots for _, slots in ends), 0
    for end, freed in sorted(ends):
        if free >= slots:
            break
        free, at = free + freed, end
    return min(at, start)


def may_go_first(
    horizon: Horizon,
    plans: Sequence[tuple[Plan, Neighbour]],
    slots: int,
    now: int,
    limit: int | None,
    p90: int,
    rivals: Collection[int] = (),
) -> bool:
    """True if a task that takes ``slots`` of a worker from now on delays none of the plans there.

    ``limit``: the latest end of the task, if it has one; ``p90``: its end by the forecast. The worker has the slots
    free now; ``plans`` are those on it, by start. ``rivals``: jobs of plans that would lack units during the task.
    """
    for plan, mine in plans:
        over = limit if plan.is_promise or limit is not None else p90
        if over is not None and over <= mine.start:
            continue
        free = horizon.certain(mine.start) if plan.is_promise else horizon.expected(mine.start)
        free -= sum(other.slots for _, other in plans if other.is_surely_there(mine.start))
        if free < slots or plan.job in rivals:
            return False
    return True
