"""The scheduler with all of its wings: the master, the simulator and the tests call the same object."""

from __future__ import annotations

from loopline_master.core.events import Checkpointed
from loopline_master.core.kernel.mechanism import Mechanism
from loopline_master.core.kernel.scheduler import KernelScheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.exemptions.wing import Overdrafts, Stalls
from loopline_master.core.wings.gangs.wing import Gangs
from loopline_master.core.wings.leases.wing import Leases
from loopline_master.core.wings.shares.wing import Shares
from loopline_master.core.wings.transfers.wing import Transfers
from loopline_master.core.wings.trust.trust import Trust

WINGS: tuple[type[Mechanism], ...] = (Shares, Gangs, Trust, Leases, Transfers, Stalls, Overdrafts)
"""In the order in which the kernel calls them."""


class Scheduler(KernelScheduler):
    """``Scheduler(snapshot)`` goes on from stored rows, ``Scheduler()`` begins an empty grid."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        super().__init__(snapshot or Snapshot(), WINGS)

    def checkpoint(self) -> Checkpointed:
        """Return the event by which the log may begin with the next step, of which it is to be the first."""
        parts = {name: part for wing in self.state.wings.all for name, part in wing.checkpoint().items()}
        return Checkpointed(self.state.settings, **parts)
