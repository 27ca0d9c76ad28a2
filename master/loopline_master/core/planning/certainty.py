"""Certainty of a plan: whether it is a promise, and the median of an estimate.

A plan is a promise if it stands even though nothing without a limit ever ends, and nothing that was only estimated
ever starts: then all that it waits for is over by its limit.

Before a promise an ordinary task goes first only if it is over by its limit; before an estimate it is enough that the
forecast's p90 says so (backfill).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopline_master.core.planning.horizon import Horizon
from loopline_master.core.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another plan on one of a gang's workers."""

    start: int
    end: int
    half: int  # the median of its end
    slots: int
    is_promise: bool


def stands(horizon: Horizon, neighbours: Sequence[Neighbour], between: tuple[int, int], slots: int) -> bool:
    """True if so many slots of a worker are sure to be free from a start to an end, if all keep to their limits."""
    start, end = between
    promised = [one for one in neighbours if one.is_promise]
    times = [start, *(one.start for one in promised if start < one.start < end)]
    return all(
        horizon.certain(at) - sum(one.slots for one in promised if one.start <= at < one.end) >= slots for at in times
    )


def half_way(horizon: Horizon, neighbours: Iterable[Neighbour], start: int, slots: int) -> int:
    """Return the median of the time at which so many slots of a worker are free for what is planned at ``start``."""
    ends = [(one.half, one.slots) for one in horizon.busy]
    ends += [(one.half, one.slots) for one in neighbours if one.start < start]
    free, at = horizon.slots - sum(slots for _, slots in ends), 0
    for end, freed in sorted(ends):
        if free >= slots:
            break
        free, at = free + freed, end
    return min(at, start)


def may_go_first(
    horizon: Horizon, plans: Sequence[tuple[Plan, Neighbour]], slots: int, now: int, limit: int | None, p90: int
) -> bool:
    """True if a task that takes so many slots of a worker from now on delays none of the plans there.

    ``limit``: when it is ended at the latest, if ever; ``p90``: when it is over by its forecast. The worker has the
    slots free now; the plans are those on it, by start.
    """
    for plan, mine in plans:
        over = limit if plan.is_promise or limit is not None else p90
        if over is not None and over <= mine.start:
            continue
        free = horizon.certain(mine.start) if plan.is_promise else horizon.expected(mine.start)
        free -= sum(other.slots for _, other in plans if other.start <= mine.start < other.end)
        if free < slots:
            return False
    return True
