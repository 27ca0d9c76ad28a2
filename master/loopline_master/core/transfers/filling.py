"""Max-min fair rates by filling up: the way without a solver of linear programmes.

All rates rise together; where a direction of a link is full, those that use it stop, and the others go on. It is what
TCP connections of equal round-trip times come near to. No receiver starves, but the sum is less than the best.
"""

from __future__ import annotations

import math

from loopline_master.core.transfers.programme import LinearProgramme

_FULL = 1e-12
"""Share of a limit that may be left where it counts as reached: what rounding leaves."""


def fill(programme: LinearProgramme) -> list[float]:
    """Return max-min fair rates above the floors, in bytes per second. Every pipeline has a constraint."""
    rates = list(programme.floors)
    left = [one.limit - sum(count * rates[number] for number, count in one.terms) for one in programme.constraints]
    rising = {number for one in programme.constraints for number, _ in one.terms}
    load = [sum(count for _, count in one.terms) for one in programme.constraints]
    while rising:
        step = min(max(0.0, rest) / count for rest, count in zip(left, load, strict=True) if count)
        for number in rising:
            rates[number] += step
        stopped: set[int] = set()
        for place, one in enumerate(programme.constraints):
            if load[place]:
                left[place] -= step * load[place]
                if left[place] <= _FULL * one.limit or math.isinf(step):
                    stopped.update(number for number, _ in one.terms)
        stopped &= rising
        rising -= stopped
        for place, one in enumerate(programme.constraints):
            load[place] -= sum(count for number, count in one.terms if number in stopped)
    return rates
