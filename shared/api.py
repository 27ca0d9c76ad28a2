"""Bodies of the REST API: what the master answers and what the client reads; one set for both.

Requests are validated by the models in spec.py (jobs) and here; times are seconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from shared.model import (
    AttemptId,
    AttemptState,
    Facts,
    JobState,
    Load,
    Name,
    Observation,
    Order,
    Prediction,
    Probation,
    SizeSource,
    TaskId,
    TaskState,
)
from shared.scalar import Scalar
from shared.spec import JobSpec


class Body(BaseModel):
    """Base of all bodies. Readers ignore unknown keys, so that a newer master serves an older client."""

    model_config = ConfigDict(frozen=True)


class Problem(Body):
    """RFC 9457 (application/problem+json), with a code for programs and the next step for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    errors: list[FieldError] = []


class FieldError(Body):
    """One thing wrong with a request's body or parameters; ``at`` points to it: ``parameters.seed.range``."""

    at: str
    message: str


class Counts(Body):
    """Tasks of a job by state."""

    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class JobView(Body):
    id: int
    name: str
    owner: str
    state: JobState
    paused: bool
    stalled: bool
    held: bool  # its last never-started task, or its delivery, is kept back by the order guarantee
    size: float | None  # reference CPU-seconds; null: unknown, and so larger than any
    size_source: SizeSource = SizeSource.UNKNOWN
    predicted: Prediction | None = None  # of one task without a size, as the job was submitted
    order: Order
    task_count: int
    tasks: Counts
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    held_at: float | None
    released_at: float | None
    max_attempts: int
    max_replicas: int | None  # null: unlimited


class JobDetail(JobView):
    spec: JobSpec


class Submission(Body):
    """The answer to a submission, given once the job is on disk."""

    id: int
    task_count: int
    warnings: list[str] = []


class AttemptView(Body):
    id: AttemptId
    worker: str
    state: AttemptState
    replica: bool
    frozen: bool  # it stands still, for the sake of the computer's owner
    waiting: bool = False  # it was sent to its worker, and waits there for a slot
    accepted: bool  # its result is the task's
    dispatched_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    reason: str
    wall_s: float
    cpu_s: float
    system_s: float = 0.0  # of these, what the system spent on its behalf
    peak_memory_bytes: int
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class TaskView(Body):
    id: TaskId
    number: int
    state: TaskState
    failures: int
    started_at: float | None
    finished_at: float | None
    worker: str | None  # of the accepted result, else of the latest attempt
    exit_code: int | None
    reason: str


class TaskDetail(TaskView):
    command: list[str]
    parameters: dict[str, Scalar]
    attempts: list[AttemptView]


class TaskResult(TaskView):
    """One line of ``GET /jobs/{id}/results``: a finished task with what it printed (UTF-8, replaced where not)."""

    parameters: dict[str, Scalar]
    stdout: str
    stdout_cut: bool  # shortened, by the worker's cap or for this list
    cursor: str = ""  # asking with it goes on after this line


class LastHour(Body):
    """What a worker delivered against what it promised, in reference CPU-seconds."""

    delivered: float  # by attempts that ended with their tasks' results
    promised: float  # speed x slots offered now
    slot_s: float  # that all its attempts took up, those in vain included
    tasks: int


class WorkerView(Body):
    name: str
    connected: bool
    draining: bool
    facts: Facts
    load: Load | None
    slots: int  # offered now
    slots_used: int
    running: list[AttemptId]
    waiting: list[AttemptId] = []  # sent there ahead, until slots are free
    joined_at: float
    reported_at: float | None
    lease_until: float
    speed: float = 1.0  # reference CPU-seconds a second and slot, as its finished tasks have shown
    queue_s: float = 0.0  # sum of the expected remaining times of all that it holds
    standing: float = 0.0  # falls with what went wrong here and not elsewhere; at -3 it goes on probation
    probation: Probation | None = None  # it is given nothing new that another could run
    on_trial: bool = False  # back from there, with one attempt at a time
    last_hour: LastHour | None = None  # where asked for


class ProgramView(Body):
    """What the grid knows of the runs of one program: jobs of one owner, name and folder."""

    owner: str
    name: str
    folder: str  # or the command's program, where jobs do not say a folder
    runs: int  # ever
    first_run_at: float
    used_at: float  # when it was last learnt from, or asked
    changed_at: float | None  # what was known before was dropped then
    predicted: Prediction | None  # of one more task
    wall_s: float  # median, as all below, of the latest runs
    cpu_s: float
    system_s: float
    peak_memory_bytes: int
    workers: dict[str, int]  # where these ran
    latest: list[Observation]


class Reason(Body):
    """One reason why something waits, and how many tasks it concerns."""

    code: str
    count: int
    detail: str


class Explanation(Body):
    """Why a job or a task is where it is: one sentence for people, the reasons for programs."""

    subject: str  # "12" or "12.3"
    state: str
    sentence: str
    reasons: list[Reason] = []


class Passing(Body):
    """Job ``job`` completed before ``passed``, which came first and is not larger."""

    job: int
    passed: int
    reason: str | None  # why that was allowed; null: it was not, and is a bug


class GridChange(Body):
    """One server-sent event: what has changed since the one before; ``missed``: more than is named here."""

    jobs: list[int] = []
    workers: list[str] = []
    missed: bool = False


class PassingReport(Body):
    """The audit of the order guarantee: each completion checked against the stored rows."""

    order: Order  # in force for jobs submitted now
    completions: int  # checked
    passings: int  # must be 0
    excused: dict[str, int]  # pairs that were allowed, by reason: paused, stalled, order-none
    latest: list[Passing]


Item = TypeVar("Item")


class Page(Body, Generic[Item]):
    """``next`` is the cursor of the page that follows; null: this is the last."""

    items: list[Item]
    next: str | None = None


Role = Literal["admin", "user", "reader", "worker"]


class TokenRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    role: Role


class TokenView(Body):
    id: Annotated[str, Field(max_length=32)]
    name: str
    role: Role
    worker: str | None = None  # the only worker that it lets in; null: any, where its role does
    created_at: float
    revoked_at: float | None = None


class TokenCreated(TokenView):
    secret: str  # shown this once


class JoinTokenRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    uses: Annotated[int, Field(ge=1, le=10_000, description="computers that may join with it")] = 1
    expires_s: Annotated[float, Field(gt=0, le=366 * 86400, description="from now on")] = 86400.0


class JoinTokenView(Body):
    id: Annotated[str, Field(max_length=32)]
    uses: int
    used: int
    created_at: float
    expires_at: float
    revoked_at: float | None = None


class JoinTokenCreated(JoinTokenView):
    secret: str  # shown this once
    address: str  # where other computers reach this master, as far as it can tell
    fingerprint: str = ""  # SHA-256 of its certificate, if it has one


class JoinRequest(Body):
    """A computer that wants to join: it has made up its worker's token, of which the master is to keep this."""

    model_config = ConfigDict(extra="forbid", strict=True)

    secret: Annotated[str, Field(max_length=200, description="of a join token")]
    worker: Name
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", description="the new token's id")]
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="the new token's SHA-256")]


class Whoami(Body):
    name: str
    role: Role
    version: str


class Health(Body):
    status: Literal["ok"]
