"""Backfill: an ordinary task goes first where it delays no planned start.

Before a promise it must be over by its limit; before an estimate it is enough that the forecast's p90 says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline_master.core.planning.certainty import Neighbour
from loopline_master.core.planning.horizon import Horizon
from loopline_master.core.planning.plan import Plan


def may_go_first(
    horizon: Horizon, plans: Sequence[tuple[Plan, Neighbour]], slots: int, now: int, limit: int | None, p90: int
) -> bool:
    """True if a task that takes so many slots of a worker from now on delays none of the plans there.

    ``limit``: when it is ended at the latest, if ever; ``p90``: when it is over by its forecast. The worker has the
    slots free now; the plans are those on it, by start.
    """
    ends = [(one.end, one.slots) for one in horizon.busy]
    for plan, mine in plans:
        over = limit if plan.is_promise or limit is not None else p90
        if over is not None and over <= mine.start:
            continue
        used = sum(many for end, many in ends if end > mine.start)
        used += sum(other.slots for _, other in plans if other.start <= mine.start < other.end)
        if horizon.slots - used < slots:
            return False
    return True
