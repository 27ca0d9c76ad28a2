"""Events: the input of the scheduler. Each is logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import to_json

from loopline_master.core.kernel.kernel_events import Beginning
from loopline_master.core.kernel.kernel_events import JobCancelled as JobCancelled
from loopline_master.core.kernel.kernel_events import JobPaused as JobPaused
from loopline_master.core.kernel.kernel_events import JobResumed as JobResumed
from loopline_master.core.kernel.kernel_events import JobRetried as JobRetried
from loopline_master.core.kernel.kernel_events import JobsForgotten as JobsForgotten
from loopline_master.core.kernel.kernel_events import JobSubmitted as JobSubmitted
from loopline_master.core.kernel.kernel_events import MasterStarted as MasterStarted
from loopline_master.core.kernel.kernel_events import MasterStoodStill as MasterStoodStill
from loopline_master.core.kernel.kernel_events import WorkerDrained as WorkerDrained
from loopline_master.core.kernel.kernel_events import WorkerForgotten as WorkerForgotten
from loopline_master.core.kernel.kernel_events import WorkerJoined as WorkerJoined
from loopline_master.core.kernel.kernel_events import WorkerLeft as WorkerLeft
from loopline_master.core.kernel.kernel_events import WorkerReported as WorkerReported
from loopline_master.core.kernel.kernel_events import WorkersHeard as WorkersHeard
from loopline_master.core.kernel.kernel_events import WorkerUndrained as WorkerUndrained
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings as SchedulerSettings  # part of the log
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_master.core.wings.transfers.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SnapshotWritten(Beginning):
    """First event of its step; replay can start here, so that earlier log entries may be deleted.

    The rows before this step are stored with it (store/log_snapshots.py). The fields are the memory of wings that is
    not in rows (``Mechanism.memory``).
    """

    nodes: tuple[NetworkNode, ...]  # of the network
    request: int  # number of the last request for a plan of transfers, which is repeated if it has no answer
    kind: Literal["snapshot_written"] = "snapshot_written"


@dataclass(frozen=True, slots=True)
class ShareChanged:
    """An operator gives a user another share of the grid."""

    user: str
    share: float
    kind: Literal["share_changed"] = "share_changed"


@dataclass(frozen=True, slots=True)
class LimitChanged:
    """An operator sets the units of a limit, or removes it (None). ``user``: see Limit."""

    name: str
    user: str
    units: int | None
    kind: Literal["limit_changed"] = "limit_changed"


@dataclass(frozen=True, slots=True)
class JobLimited:
    """A user or an operator changes how many attempts of a job may run at once; None: unlimited."""

    job: int
    max_running: int | None
    kind: Literal["job_limited"] = "job_limited"


@dataclass(frozen=True, slots=True)
class WakeRequested:
    """An operator asks to wake a sleeping worker's computer, or to test whether an awake one can be woken."""

    worker: str
    is_test: bool = False
    kind: Literal["wake_requested"] = "wake_requested"


@dataclass(frozen=True, slots=True)
class CheckpointsRecalled:
    """The checkpoints that the tasks of an ended job have kept; the job is about to be retried."""

    job: int
    checkpoints: tuple[SavedCheckpoint, ...]
    is_dropped: bool = False  # its tasks begin from the start, and these are removed
    kind: Literal["checkpoints_recalled"] = "checkpoints_recalled"


@dataclass(frozen=True, slots=True)
class NetworkChanged:
    """Nodes of the network were added, changed or, by name, removed. Capacities are finite.

    A start of the master forgets all nodes: they must be sent again. Workers without a node are assumed to be at the
    root, on links of 1 Gbit/s. Declined if the result would not be a tree; the network then stays as it was.
    """

    nodes: tuple[NetworkNode, ...]
    gone: tuple[str, ...] = ()
    kind: Literal["network_changed"] = "network_changed"


@dataclass(frozen=True, slots=True)
class TransfersPlanned:
    """The planner's answer to the request of this number (``Effects.asked``); empty if it failed."""

    number: int
    pipelines: tuple[Pipeline, ...]
    objective: float  # bytes per second, at all receivers together
    kind: Literal["transfers_planned"] = "transfers_planned"


Event = (
    MasterStarted
    | MasterStoodStill
    | SnapshotWritten
    | JobSubmitted
    | JobCancelled
    | JobPaused
    | JobResumed
    | JobRetried
    | JobsForgotten
    | WorkerJoined
    | WorkerReported
    | WorkersHeard
    | WorkerLeft
    | WorkerDrained
    | WorkerUndrained
    | WorkerForgotten
    | ShareChanged
    | LimitChanged
    | JobLimited
    | WakeRequested
    | CheckpointsRecalled
    | NetworkChanged
    | TransfersPlanned
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events and time of one step: the unit of the event log."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    now: float
    events: list[Annotated[Event, Field(discriminator="kind")]] = field(default_factory=list)


BATCH: TypeAdapter[Batch] = TypeAdapter(Batch)
"""Batches to JSON and back, for the event log. It is built at its first use, which takes long."""


def as_logged(batch: Batch) -> str:
    """Return a batch as JSON, as BATCH writes it, but without building BATCH for a start of the master."""
    match batch.events:
        case [MasterStarted()]:
            return to_json(batch, inf_nan_mode="null").decode()
    return BATCH.serializer.to_json(batch).decode()
