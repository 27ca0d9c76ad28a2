"""The policies: one algorithm a file, one line each in the registry.

A policy only orders wishes. It is a function from the View to placements, asked again at every step; each wish
is granted or refused before the next is drawn, so the View always shows what came of it. What it wishes can
never break the order guarantee, the replica limit or a worker's requirements: the scheduler checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from loopline_master.core.policies import (
    at_random,
    cyclic,
    fair,
    first_come,
    most_throughput,
    round_robin,
    shortest_queue,
    space_partition,
    turnaround,
)
from loopline_master.core.policies.fair_index import FairIndex
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.state import PolicyIndex, State


@dataclass(frozen=True, slots=True)
class Policy:
    plan: Callable[[View], Iterator[Placement]]
    index: Callable[[State], PolicyIndex] | None = None  # what it looks things up in, beside the View
    ahead: Callable[[View], Iterator[Placement]] | None = None
    """Wishes for what is to wait at workers at work in all their slots (View.workers_with_room): what it would
    start there next. None: nothing."""
    ahead_s: float | None = None
    """So much expected work may wait at a worker, a slot, where the settings let any; None: as they say."""


REGISTRY: Mapping[str, Policy] = {
    "round-robin": Policy(round_robin.plan, ahead=round_robin.ahead),
    "first-come": Policy(first_come.plan, ahead=first_come.ahead),
    "space-partition": Policy(space_partition.plan),
    "fair": Policy(fair.plan, FairIndex, ahead=fair.ahead),
    "turnaround": Policy(turnaround.plan, turnaround.Turnaround, ahead_s=turnaround.AHEAD_S),
    "random": Policy(at_random.plan, at_random.Anybody),
    "cyclic": Policy(cyclic.plan, cyclic.Cycle),
    "shortest-queue": Policy(shortest_queue.plan, shortest_queue.Queues),
    "most-throughput": Policy(most_throughput.plan, most_throughput.Rates),
}
