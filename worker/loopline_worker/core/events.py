"""Events: what has happened to a worker, told to its machine in the order in which it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core.owner_policy import Signs


@dataclass(frozen=True, slots=True)
class Restored:
    """An agent has started. This is what an earlier one left in the journal."""

    results: Sequence[Result] = ()  # not acknowledged, the oldest first
    begun: Sequence[AttemptId] = ()  # without a result: whatever ran is gone
    waiting: Sequence[Run] = ()
    agent_died: bool = False  # the earlier agent did, and not the computer
    life: str = ""  # of the master's database that has given all this; empty: not known


@dataclass(frozen=True, slots=True)
class Connected:
    """A session with the master has begun. Reports of earlier sessions may be lost."""


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The master of this session has said which life its database is in."""

    life: str


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """The master was silent for a lease: it may have given elsewhere what waits here."""


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
    """A prefetched attempt began in the slot of another, which has ended. The other's end is told later."""

    before: AttemptId
    after: AttemptId


@dataclass(frozen=True, slots=True)
class Returned:
    """These were prefetched and will not begin by themselves. Any other prefetched attempt has begun."""

    attempts: Sequence[AttemptId]


@dataclass(frozen=True, slots=True)
class Retracted:
    """The instruction to retract was carried out: what is still prefetched has begun, as will be told."""


class WingEvent:
    """Event of an optional feature (machine_wing.py), which defines it and takes it in."""

    __slots__ = ()


@dataclass(slots=True)
class AttemptEnded:
    """Nothing of an attempt runs any more, and this is its result."""

    result: Result
    trouble: str = ""  # what this computer could not do
    leaves_folder: bool = False  # its scratch folder is there until it is told as cleared


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
    """Nothing of an attempt that was to freeze moves any more."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class DiskObserved:
    """The disk of the computer was looked at."""

    obstacle: str = ""  # why no slots may be offered
    shortage: str = ""  # why something of what runs has to go
    is_writable: bool = False  # files can be written again, after a trouble


@dataclass(frozen=True, slots=True)
class Stopping:
    """The agent is about to stop."""

    reason: str = "the worker was stopped"


Event = (
    Restored | Connected | Welcomed | LinkSilent | Assigned | Reported | Followed | Returned | Retracted
    | AttemptEnded | Cleared | WriteFailed | Delivered | OwnerObserved | FreezeCompleted | DiskObserved | Stopping
    | WingEvent
)  # fmt: skip
