"""Events of a worker, posted to its machine in the order in which they happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core.owner_policy import Signs


@dataclass(frozen=True, slots=True)
class Restored:
    """An agent has started. These attempts are in the journal of its predecessor."""

    results: Sequence[Result] = ()  # not acknowledged, oldest first
    begun: Sequence[AttemptId] = ()  # without a result; their processes are gone
    waiting: Sequence[Run] = ()
    agent_died: bool = False  # the previous agent crashed, but the computer kept running
    life: str = ""  # of the master's database that these attempts come from; empty: not known


@dataclass(frozen=True, slots=True)
class Connected:
    """A session with the master has begun. Reports of earlier sessions may be lost."""


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The master of this session has named the life of its database."""

    life: str


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """The master was silent for a lease: it may have given the waiting attempts to other workers."""


@dataclass(slots=True)  # not frozen, as below: one is made for every frame, and for every task
class Assigned:
    """An Assign has come, in this ``frame``."""

    assign: Assign
    frame: bytes = b""


@dataclass(frozen=True, slots=True)
class Reported:
    """A Report with these results left in this session."""

    seq: int
    results: Sequence[Result] = ()


@dataclass(slots=True)
class Followed:
    """A prefetched attempt began in the slot of another, which has ended. The other's AttemptEnded comes later."""

    before: AttemptId
    after: AttemptId


@dataclass(frozen=True, slots=True)
class Returned:
    """These were prefetched and will not begin by themselves. Any other prefetched attempt has begun."""

    attempts: Sequence[AttemptId]


@dataclass(frozen=True, slots=True)
class Retracted:
    """The instruction to retract was carried out. What is still prefetched has begun; its Followed will come."""


class WingEvent:
    """Event of an optional feature (machine_wing.py), which defines and handles it."""

    __slots__ = ()


@dataclass(slots=True)
class AttemptEnded:
    """Nothing of an attempt runs any more, and this is its result."""

    result: Result
    trouble: str = ""  # failure of this computer, if any
    leaves_folder: bool = False  # its scratch folder exists until Cleared


@dataclass(frozen=True, slots=True)
class Cleared:
    """The scratch folder of an attempt that has ended is gone."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The last entry could not be written to the journal. Its results may be lost in a crash."""

    results: Sequence[AttemptId]
    trouble: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """A result is on disk, and the master has every file that it names."""

    result: Result


@dataclass(frozen=True, slots=True)
class OwnerObserved:
    """The idle detector and the load of the computer were read."""

    signs: Signs
    input_at: float  # when the last input took place, by the clock of ``now``


@dataclass(frozen=True, slots=True)
class FreezeCompleted:
    """All processes of an attempt that was being frozen are stopped."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class DiskObserved:
    """The disk of the computer was checked."""

    obstacle: str = ""  # why no slots may be offered
    shortage: str = ""  # why a running attempt has to be preempted
    is_writable: bool = False  # files can be written again after a failure


@dataclass(frozen=True, slots=True)
class Stopping:
    """The agent is about to stop."""

    reason: str = "the worker was stopped"


Event = (
    Restored | Connected | Welcomed | LinkSilent | Assigned | Reported | Followed | Returned | Retracted
    | AttemptEnded | Cleared | WriteFailed | Delivered | OwnerObserved | FreezeCompleted | DiskObserved | Stopping
    | WingEvent
)  # fmt: skip
