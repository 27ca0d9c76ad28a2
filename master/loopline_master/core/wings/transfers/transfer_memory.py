"""Memory of the wing *transfers*: the workers' files and fetches, and the planner's present request."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.wings.transfers.carrier import Carrier, NumberedRequest, TransferState


@dataclass(slots=True)
class TransferMemory:
    carriers: dict[str, Carrier] = field(default_factory=dict)  # by worker
    transfers: TransferState = field(default_factory=TransferState)


def asked(effects: Effects) -> NumberedRequest | None:
    """Return the request for a plan of transfers, to be answered by TransfersPlanned; None if there is none."""
    return next(iter(effects.told(NumberedRequest)), None)
