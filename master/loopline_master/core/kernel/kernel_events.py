"""Events that concern the kernel. Those of wings are in core/events.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loopline_master.core.kernel.entities import Job, Task
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_shared.model import Facts, JobState
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Beginning:
    """Base of the events that can begin a log."""

    settings: SchedulerSettings


@dataclass(frozen=True, slots=True)
class MasterStarted(Beginning):
    """First event of every run: no link is open, and every lease starts again."""

    kind: Literal["master_started"] = "master_started"


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    owner: str
    spec: JobSpec
    idempotency_key: str | None = None
    ended: dict[int, JobState] = field(default_factory=dict)  # states of the ended jobs that it depends on
    inputs: str | None = None  # SHA-256 of the file that lists its tasks' inputs, already on the master's disk
    spec_bytes: int = 0  # as JSON
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
    """A failed or cancelled job will be completed.

    The scheduler may have forgotten it long ago. The event therefore brings its row, the rows of its unsuccessful
    tasks that run again, and half-open ranges of its other tasks.
    """

    job: Job
    tasks: list[Task]
    succeeded: list[tuple[int, int]]  # or remain failed: not run again
    ended: dict[int, JobState] = field(default_factory=dict)  # as in JobSubmitted
    failed: int = 0  # of the tasks that are not run again
    kind: Literal["job_retried"] = "job_retried"


@dataclass(frozen=True, slots=True)
class JobsForgotten:
    """The rows of jobs that ended long ago will be deleted."""

    jobs: tuple[int, ...]
    kind: Literal["jobs_forgotten"] = "jobs_forgotten"


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
class WorkersHeard:
    """Workers reported as before: these Reports are not events themselves (wings/leases/kept_back.py).

    ``ago_s``: seconds since each was last seen, in its open session. Its lease is ``lease_s`` long from that time.
    """

    ago_s: dict[str, float]
    lease_s: float
    kind: Literal["workers_heard"] = "workers_heard"


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    worker: str
    session: int
    kind: Literal["worker_left"] = "worker_left"


@dataclass(frozen=True, slots=True)
class WorkerDrained:
    worker: str
    reason: str = ""  # as the operator gave it
    now: bool = False  # its running tasks are ended, and queued again
    kind: Literal["worker_drained"] = "worker_drained"


@dataclass(frozen=True, slots=True)
class WorkerUndrained:
    worker: str
    kind: Literal["worker_undrained"] = "worker_undrained"


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """A worker that is away is not expected back: an admin says so, or it has been away for long."""

    worker: str
    kind: Literal["worker_forgotten"] = "worker_forgotten"


@dataclass(frozen=True, slots=True)
class MasterStoodStill:
    """The master was suspended, its computer most likely asleep: it received no Reports while leases ran on."""

    kind: Literal["master_stood_still"] = "master_stood_still"
