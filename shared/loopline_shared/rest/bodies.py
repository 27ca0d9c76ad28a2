"""Bodies of the REST API: what the master answers and what the client reads; one set for both.

Requests are validated by the models in spec.py (jobs) and here; times are seconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from loopline_shared.model import (
    AttemptId,
    AttemptState,
    Facts,
    JobState,
    Load,
    Observation,
    Order,
    Output,
    OutputFile,
    Prediction,
    Probation,
    SizeSource,
    TaskId,
    TaskState,
)
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

PlainAttemptState = Annotated[
    AttemptState,
    WithJsonSchema(
        {
            "type": "string",
            "enum": sorted({state.without_phase.value for state in AttemptState}),
            "description": "prefetched is dispatched here, frozen is running, retracting is cancelling: see phase",
        }
    ),
]
"""For one release more, clients read the names that they know."""


class Body(BaseModel):
    """Base of all bodies. Readers ignore unknown keys, so that a newer master serves an older client."""

    model_config = ConfigDict(frozen=True, defer_build=True)  # few of them are needed at a start


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


class Ledger(Body):
    """CPU seconds that a job took: useful, wasted and lost ones make up the whole; those of replicas are in them."""

    useful_cpu_s: float = 0.0  # by attempts whose results count
    replicated_cpu_s: float = 0.0  # by replicas, however they ended
    won_cpu_s: float = 0.0  # by replicas that brought their task's result
    wasted_cpu_s: float = 0.0  # by attempts that another one of their task made superfluous
    lost_cpu_s: float = 0.0  # by attempts that failed, were lost, given back or cancelled with their job


class Eta(Body):
    """When a job will probably have completed: before p50_at in one of two cases, before p90_at in nine of ten."""

    p50_at: float
    p90_at: float
    based_on: str
    judged: int = 0  # ETAs of completed jobs, all and any
    p50_held: float | None = None  # share of those jobs that had completed by then
    p90_held: float | None = None


class MomentReport(Body):
    """How well those ETAs held that were given when so many per cent of a job's tasks were over (0: the first)."""

    moment: int
    jobs: int  # that have completed since
    p50_held: float | None = None  # share of them that had completed by then
    p90_held: float | None = None


class ForecastReport(Body):
    moments: list[MomentReport]


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
    entered_at: float | None = None  # when it (last) entered the grid
    waiting_for: list[int] = []  # jobs that have yet to succeed before it enters the grid
    mismatches: int = 0  # tasks of which two results differ
    ledger: Ledger = Ledger()
    eta: Eta | None = None
    eta_note: str = ""  # why there is none


class JobDetail(JobView):
    spec: JobSpec
    notification: str = ""  # what became of telling somebody that it is over; empty: not asked for, or not over


class Submission(Body):
    """The answer to a submission, given once the job is on disk."""

    id: int
    task_count: int
    warnings: list[str] = []


class PlannedTask(Body):
    number: int
    command: list[str]
    parameters: dict[str, Scalar]


class Expected(Body):
    """In how many seconds a job would be over if it were submitted now: as likely as not, and nearly surely."""

    p50_s: float
    p90_s: float


class Preview(Body):
    """What would come of a submission. ``tasks``: the first ones; none where their row file is not here yet."""

    task_count: int
    size: float | None  # reference CPU-seconds; null: unknown, and so larger than any
    tasks: list[PlannedTask]
    warnings: list[str] = []
    expected: Expected | None = None  # null: nothing is known to tell it by


class AttemptView(Body):
    id: AttemptId
    worker: str
    state: PlainAttemptState
    phase: AttemptState | None = Field(None, description="its state to the letter; null: of a master that says none")
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
    output_count: int = 0  # files that it left


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
    mismatch: bool = False  # two of its results differ


class VoteView(Body):
    """What one attempt brought, in short: equal digests, equal results."""

    attempt: int
    worker: str
    digest: str


class TaskDetail(TaskView):
    command: list[str]
    parameters: dict[str, Scalar]
    votes: list[VoteView] = []  # results that were compared
    attempts: list[AttemptView]
    outputs: list[OutputFile] = []  # of its accepted attempt


class TaskResult(TaskView):
    """One line of ``GET /jobs/{id}/results``: a finished task with what it printed (UTF-8, replaced where not)."""

    parameters: dict[str, Scalar]
    stdout: str
    stdout_cut: bool  # shortened, by the worker's cap or for this list
    value: Output | None = None
    # Of a function: a pickle of what it returned, or of (exception, traceback); where a task makes several calls,
    # the ends of all of them, one behind the other (protocol/chunks.py).
    cursor: str = ""  # asking with it goes on after this line


class OutputFiles(Body):
    """What a task left, and its job wants back."""

    items: list[OutputFile]


class PruneRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    older_than_s: Annotated[
        float | None, Field(ge=0, le=1e10, allow_inf_nan=False, description="files of jobs over for so long, too")
    ] = None
    delete: bool = Field(default=False, description="false: only say what there is")


class PruneReport(Body):
    """Files that nobody needs: removed, or to be removed."""

    deleted: bool
    job_count: int  # whose files are not kept any more
    jobs: list[int]  # the first of them
    files: int
    bytes: int
    uploads: int  # that broke off, and nobody went on with
    upload_bytes: int
    older_than_s: float | None
    grace_s: float  # what is younger stays


class LastHour(Body):
    """What a worker delivered against what it promised, in reference CPU-seconds."""

    delivered: float  # by attempts that ended with their tasks' results
    promised: float  # speed x slots offered now
    slot_s: float  # that all its attempts took up, those in vain included
    tasks: int


class WorkerView(Body):
    name: str
    mismatches: int = 0  # results of its that another worker's contradict
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
    job: int | None = None  # that is the reason, where it is another job


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


class LiveTotals(Body):
    """Counts over all live jobs (those that are not over), however few of them a page shows."""

    in_grid: int  # jobs
    waiting: int  # jobs outside the grid, which wait for others to succeed
    held: int  # jobs in the grid whose last never-started task, or delivery, is kept back by the order guarantee
    tasks_queued: int  # of the jobs in the grid


class JobPage(Page[JobView]):
    live: LiveTotals | None = None  # null unless live jobs were asked for


HistorySubject = Literal["user", "worker", "job"]


class HistoryLine(Body):
    """What attempts of one user, worker or job came to, of those that ended within a time."""

    subject: str
    name: str  # a job's; else empty
    jobs: int
    tasks: int  # that they completed
    attempts: int
    wall_s: float  # on workers' slots
    useful_cpu_s: float  # of results that were accepted
    replicated_cpu_s: float  # of replicas, whether they won or lost
    wasted_cpu_s: float  # of those that lost to another attempt, or were cancelled with their job
    lost_cpu_s: float  # of those that failed, or were lost or given back with their worker


class HistoryReport(Body):
    since: float
    until: float
    lines: list[HistoryLine]


class Health(Body):
    status: Literal["ok"]
