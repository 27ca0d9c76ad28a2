"""The policies: one algorithm a file, one line each in the registry.

A policy only orders wishes. It is a function from the View to placements, asked again at every step; each wish
is granted or refused before the next is drawn, so the View always shows what came of it. What it wishes can
never break the order guarantee, the replica limit or a worker's requirements: the scheduler checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from master.scheduling.policies import first_come, round_robin, space_partition
from master.scheduling.view import Placement, View

Policy = Callable[[View], Iterator[Placement]]

REGISTRY: Mapping[str, Policy] = {
    "round-robin": round_robin.plan,
    "first-come": first_come.plan,
    "space-partition": space_partition.plan,
}
