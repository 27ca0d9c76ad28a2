"""Max-min fair rates by filling up, without a solver of linear programmes.

All rates rise together. When a direction of a link is full, the pipelines that use it stop, with those that follow
them, and the others continue. TCP connections of equal round-trip times come close to this. No receiver starves, but
the sum is less than the best.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

from loopline_master.core.wings.transfers.programme import LinearProgramme


def fill(programme: LinearProgramme) -> list[float]:
    """Return max-min fair rates above the floors, in bytes per second. Every pipeline has a constraint."""
    rates, rows = list(programme.floors), programme.constraints
    left = [max(0.0, row.limit - sum(count * rates[number] for number, count in row.terms)) for row in rows]
    load = [sum(count for _, count in row.terms) for row in rows]
    uses = defaultdict[int, list[tuple[int, int]]](list)
    for place, row in enumerate(rows):
        for number, count in row.terms:
            uses[number].append((place, count))
    followers = defaultdict[int, list[int]](list)
    for follower, ahead in programme.follows:
        followers[ahead].append(follower)
    full_at = [(rest / often, place) for place, (rest, often) in enumerate(zip(left, load, strict=True))]
    heapify(full_at)
    while full_at:  # the level of all rates when the next constraint is full
        level, place = heappop(full_at)
        if not load[place]:
            continue
        if (risen := left[place] / load[place]) > level:  # some of its pipelines have stopped since
            heappush(full_at, (risen, place))
            continue
        stopping = [number for number, _ in rows[place].terms]
        while stopping:
            number = stopping.pop()
            if number in uses:
                stopping += followers[number]
            for other, count in uses.pop(number, ()):
                rates[number] = programme.floors[number] + level
                left[other] -= level * count
                load[other] -= count
    return rates
