"""The scheduler with all of its wings: the master, the simulator and the tests call the same object."""

from __future__ import annotations

from loopline_master.core.events import SnapshotWritten
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.kernel_scheduler import KernelScheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.checkpoints.checkpoints_wing import Checkpoints
from loopline_master.core.wings.energy.energy_wing import Energy
from loopline_master.core.wings.exemptions.exemption_wings import OverdrawnExemptions, Proofs, StallExemptions
from loopline_master.core.wings.exemptions.idle_budget import IdleExemptions
from loopline_master.core.wings.fencing.fencing_wing import Fencing
from loopline_master.core.wings.gangs.gang_wing import Gangs
from loopline_master.core.wings.leases.lease_wing import Leases
from loopline_master.core.wings.reservations.reservation_wing import Reservations
from loopline_master.core.wings.resources.resources_wing import Resources
from loopline_master.core.wings.shares.shares_wing import Shares
from loopline_master.core.wings.transfers.transfer_wing import Transfers
from loopline_master.core.wings.trust.trust import Trust

WINGS: tuple[type[Wing], ...] = (
    Shares,
    Gangs,
    Trust,
    Leases,
    Transfers,
    Fencing,
    Resources,
    Reservations,
    Checkpoints,
    Energy,
    StallExemptions,
    OverdrawnExemptions,
    Proofs,
    IdleExemptions,
)
"""Wings in the order of the kernel's calls."""


class Scheduler(KernelScheduler):
    """``Scheduler(snapshot)`` continues from stored rows, ``Scheduler()`` begins an empty grid."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        super().__init__(snapshot or Snapshot(), WINGS)

    def snapshot_event(self) -> SnapshotWritten:
        """Return the first event of a step where replay can start."""
        parts = {name: part for wing in self.state.wings.all for name, part in wing.memory().items()}
        return SnapshotWritten(self.state.settings, **parts)
