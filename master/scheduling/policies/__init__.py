"""The policies: one algorithm a file, one line each in the registry.

A policy only orders wishes. It is a function from the View to placements, asked again at every step; each wish
is granted or refused before the next is drawn, so the View always shows what came of it. What it wishes can
never break the order guarantee, the replica limit or a worker's requirements: the scheduler checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from master.scheduling.fair_index import FairIndex
from master.scheduling.policies import fair, first_come, round_robin, space_partition
from master.scheduling.state import PolicyIndex, State
from master.scheduling.view import Placement, View


@dataclass(frozen=True, slots=True)
class Policy:
    plan: Callable[[View], Iterator[Placement]]
    index: Callable[[State], PolicyIndex] | None = None  # what it looks things up in, beside the View


REGISTRY: Mapping[str, Policy] = {
    "round-robin": Policy(round_robin.plan),
    "first-come": Policy(first_come.plan),
    "space-partition": Policy(space_partition.plan),
    "fair": Policy(fair.plan, FairIndex),
}
