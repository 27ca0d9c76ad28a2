"""A master that plans without the network: each worker fetches a file from any holder, and tasks go in turn.

For comparison: it ignores reports about the network, and connections share links as TCP does.
"""

from __future__ import annotations

import random
import sys

from loopline_master import __main__ as master
from loopline_master.core.kernel.entities import Job
from loopline_master.core.wings.transfers.data_delay import DataDelays
from loopline_master.core.wings.transfers.pipeline import Pipeline, PlanRequest, TransferPlan
from loopline_master.transfers.solver import Solver

_chance = random.Random(1)
_UNPLANNED = 1e9


def random_peers(solver: Solver, request: PlanRequest) -> TransferPlan:
    """Return a plan where each receiver fetches the file from one random holder."""
    kept = {(line.file, host): line.hosts[0] for line in request.running for host in line.receivers}
    lines = []
    for demand in request.demands:
        holders = request.holders.get(demand.file, ())
        source = kept.get((demand.file, demand.host))
        if source not in holders:
            source = _chance.choice(holders) if holders else None
        if source is not None:
            lines.append((demand.file, (source, demand.host)))
    return TransferPlan(tuple(Pipeline(file, hosts, _UNPLANNED) for file, hosts in lines), 0.0)


def in_turn(delays: DataDelays, job: Job, task: int, worker: str) -> int:
    """Return the task whose turn it is."""
    return task


if __name__ == "__main__":
    Solver.plan = random_peers  # type: ignore[method-assign,assignment]
    DataDelays.nearer_task = in_turn  # type: ignore[method-assign,assignment]
    sys.exit(master.main())
