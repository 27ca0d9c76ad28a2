"""RR-NRF, round robin with no replica first (Anglano and Canonico, 2008).

Jobs take turns, and while any job has a waiting task, no running one is replicated.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.field.wqr import first_replica, first_start
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register


@register("rr-nrf", live=False)
class RoundRobinNoReplicaFirst(WorkerFirst):
    """The next waiting task of the job whose turn it is; else the next to replicate, in the same round."""

    replicates = True

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        turn = view.grid.pointer
        return first_start(view, worker, after=turn) or first_replica(view, worker, after=turn)
