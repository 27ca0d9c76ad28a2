"""What may happen to the grid. Everything the scheduler ever learns is one of these, and each is logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from loopline_master.core.entities import Job, Task
from loopline_shared.model import Facts, JobState, Order
from loopline_shared.protocol.messages import Report
from loopline_shared.spec import JobSpec


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """All that bears on a decision. Part of the log, so that a replay decides alike."""

    policy: str = "round-robin"
    order: Order = Order.HOLD
    lease_s: float = 30.0  # how long a silent worker is believed to be at work
    report_every_s: float = 10.0  # the longest a worker stays silent when all is well
    stall_after_s: float = 60.0  # without a worker that could run it, a job holds others no longer
    max_attempts: int = 3  # where a job says nothing
    max_replicas: int | None = 2  # where a job says nothing; None: unlimited
    max_jobs: int = 10_000  # unfinished at once
    max_tasks: int = 1_000_000  # of one job
    max_workers: int = 10_000
    max_programs: int = 10_000  # that something is remembered of
    probation_s: float = 60.0  # how long the first one lasts; each that follows twice as long; 0: there is none
    max_probation_s: float = 3600.0
    ahead_s: float = 0.0  # expected work that may wait at a worker, for each of its slots; 0: as in an older log
    max_ahead: int = 256  # attempts that may wait at a worker, however short


@dataclass(frozen=True, slots=True)
class MasterStarted:
    """First event of every run: no link is open, and every lease begins anew."""

    settings: SchedulerSettings
    kind: Literal["master_started"] = "master_started"


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    owner: str
    spec: JobSpec
    idempotency_key: str | None = None
    ended: dict[int, JobState] = field(default_factory=dict)  # how those ended that it is to come after
    inputs: str | None = None  # SHA-256 of the file that lists its tasks' inputs: on the master's disk already
    kind: Literal["job_submitted"] = "job_submitted"


@dataclass(frozen=True, slots=True)
class JobCancelled:
    job: int
    kind: Literal["job_cancelled"] = "job_cancelled"


@dataclass(frozen=True, slots=True)
class JobPaused:
    job: int
    kind: Literal["job_paused"] = "job_paused"


@dataclass(frozen=True, slots=True)
class JobResumed:
    job: int
    kind: Literal["job_resumed"] = "job_resumed"


@dataclass(frozen=True, slots=True)
class JobRetried:
    """A failed or cancelled job is to be completed. It may have left the scheduler's memory long ago, so the
    event brings its row, the rows of its unsuccessful tasks, and which tasks succeeded (half-open ranges).
    """

    job: Job
    tasks: list[Task]
    succeeded: list[tuple[int, int]]
    ended: dict[int, JobState] = field(default_factory=dict)  # as in JobSubmitted
    kind: Literal["job_retried"] = "job_retried"


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker opened link number ``session``; an older link of the same name is superseded."""

    worker: str
    session: int
    boot: str
    facts: Facts
    kind: Literal["worker_joined"] = "worker_joined"


@dataclass(frozen=True, slots=True)
class WorkerReported:
    worker: str
    session: int
    report: Report
    kind: Literal["worker_reported"] = "worker_reported"


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    worker: str
    session: int
    kind: Literal["worker_left"] = "worker_left"


@dataclass(frozen=True, slots=True)
class WorkerDrained:
    worker: str
    kind: Literal["worker_drained"] = "worker_drained"


@dataclass(frozen=True, slots=True)
class WorkerUndrained:
    worker: str
    kind: Literal["worker_undrained"] = "worker_undrained"


Event = (
    MasterStarted
    | JobSubmitted
    | JobCancelled
    | JobPaused
    | JobResumed
    | JobRetried
    | WorkerJoined
    | WorkerReported
    | WorkerLeft
    | WorkerDrained
    | WorkerUndrained
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step was given: the unit of the event log."""

    now: float
    events: list[Annotated[Event, Field(discriminator="kind")]] = field(default_factory=list)


BATCH: TypeAdapter[Batch] = TypeAdapter(Batch)
"""Batches to JSON and back, for the event log."""
