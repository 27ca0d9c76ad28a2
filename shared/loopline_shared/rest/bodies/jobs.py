"""Bodies about jobs: their state, submissions and previews, and explanations of a wait."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from loopline_shared.job.parameters import MAX_TASKS
from loopline_shared.model import JobState, Order, OrderWithin, Prediction, SizeSource
from loopline_shared.rest.bodies.base import Body, Page, Period
from loopline_shared.rest.bodies.network import FileFlow
from loopline_shared.rest.bodies.reports import EnergyUse
from loopline_shared.rest.bodies.tasks import TaskResult
from loopline_shared.rest.times import Time
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

JobCondition = Literal[
    "waiting", "queued", "running", "succeeded", "failed", "cancelled", "paused", "stalled", "held", "overdrawn"
]
"""A job's state in one word; a reason for waiting takes the place of queued and running."""


class Counts(Body):
    """Tasks of a job by state. Its progress is the number that succeeded, of all tasks."""

    queued: int = 0
    running: int = 0  # or at a worker, to run there
    prefetched: int = 0  # number of these that wait at their workers for a slot
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class JobAccounting(Body):
    """CPU time of a job: the sum of useful, kept, wasted and lost time, each including that of replicas."""

    useful_cpu_s: float = 0.0  # by attempts whose results count
    replicated_cpu_s: float = 0.0  # by replicas, however they ended
    won_cpu_s: float = 0.0  # by replicas that brought their task's result
    wasted_cpu_s: float = 0.0  # by attempts made superfluous by another one of their task
    lost_cpu_s: float = 0.0  # by attempts that failed, were lost, preempted or cancelled with their job
    kept_cpu_s: float = 0.0  # by attempts without a result, as far as a checkpoint has it
    checkpoints: int = 0  # sent to the master
    checkpoint_bytes: int = 0  # sent with them
    checkpoint_held_s: float = 0.0  # time that tasks were stopped for them


class Eta(Body):
    """Estimated time of a job's completion: before p50_at in one of two cases, before p90_at in nine of ten."""

    p50_at: Time
    p90_at: Time
    based_on: str
    judged: int = 0  # ETAs of completed jobs, all and any
    p50_held: float | None = None  # share of those jobs that had completed by then
    p90_held: float | None = None


class PlanView(Body):
    """Planned start of a gang. A promise only moves forward, unless a worker is lost or claimed: then it says so."""

    task: int
    kind: str  # promise: everything that it waits for has limits; estimate
    start_at: Time | None  # of an estimate by the 90th percentiles; null: too few workers are there
    p50_at: Time | None = None  # of an estimate
    p90_at: Time | None = None
    machines: list[str]  # workers, by rank
    slots: int  # on each of them
    limit_s: float  # time that its place is reserved
    limit_is_given: bool  # by its user; otherwise it is predicted, with a margin
    told_at: Time  # time of the first plan
    first_start_at: Time | None  # the start of the first plan
    changed_at: Time | None = None  # when it last moved
    moves: int = 0  # forward
    broken: int = 0  # promises that were not kept
    reason: str = ""  # of the last change
    promised_at: Time | None = None  # the first start that was a promise
    broken_reason: str = ""  # of the last promise that was not kept
    delays: int = 0  # of an estimate: earlier work took longer than expected
    started_at: Time | None = None


class WaitingPlan(PlanView):
    """Planned start of a gang that waits, with its job."""

    job: int
    name: str
    user: str


class WaitingPlans(Body):
    """Gangs that wait for their planned starts, the earliest first; ``truncated`` if there are more."""

    now: Time  # by the master's clock
    plans: list[WaitingPlan]
    truncated: bool = False


class JobView(Body):
    id: int
    name: str
    user: str
    state: JobState
    condition: JobCondition  # the state in one word; a reason for waiting comes first
    paused: bool
    stalled: bool
    overdrawn: bool = False
    held: bool  # the order guarantee holds its last task, or its delivery
    size: float | None  # reference CPU-seconds; null: it has none, so later jobs may finish first
    size_source: SizeSource = SizeSource.UNKNOWN
    shown: float | None = None  # its weight in the order if it has no size, in reference CPU-seconds; null: unknown
    predicted: Prediction | None = None  # of one task without a size, as the job was submitted
    order: Order
    within: OrderWithin = OrderWithin.GRID  # the jobs among which the order is guaranteed
    task_count: int
    tasks: Counts
    submitted_at: Time
    started_at: Time | None
    finished_at: Time | None
    held_at: Time | None
    released_at: Time | None
    waited: Period  # from its submission until its first task started, or until it ended without one
    took: Period | None = None  # from the start of its first task to its end; null: none has started
    was_held: Period | None = None  # while the order guarantee held its last task, or its delivery; null: never
    max_attempts: int
    max_replicas: int | None  # null: unlimited
    max_running: int | None = None  # of its attempts at once; null: unlimited
    entered_at: Time | None = None  # when it (last) entered the grid
    waiting_for: list[int] = Field(default=[])  # jobs that have yet to succeed before it enters the grid
    mismatches: int = 0  # tasks with two different results
    ledger: JobAccounting = JobAccounting()
    progress: float | None = Field(
        None, description="part of its tasks that is done, with that of running ones; null: no running task tells any"
    )
    eta: Eta | None = None
    eta_note: str = ""  # reason for a missing ETA


class JobDetail(JobView):
    spec: JobSpec
    plan: PlanView | None = None  # of its next gang, or of the last that has started
    notification: str = ""  # state of the end's notification; empty: none, or the job has not ended
    files_coming: tuple[FileFlow, ...] = ()  # large inputs on their way to workers that are to run its tasks
    energy: EnergyUse | None = None  # of its attempts that have ended; null: unknown, or a large job that runs


class JobChange(Body):
    """Changes of an unfinished job."""

    max_running: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None  # null: unlimited


class LiveTotals(Body):
    """Counts over all live jobs (jobs that are not over), independent of the page."""

    in_grid: int  # jobs
    waiting: int  # jobs outside the grid, which wait for others to succeed
    held: int  # jobs in the grid whose last task, or delivery, the order guarantee holds
    tasks_queued: int  # of the jobs in the grid


class JobPage(Page[JobView]):
    live: LiveTotals | None = None  # null unless live jobs were asked for


class Submission(Body):
    """Answer to a submission, given once the job is on disk."""

    id: int
    task_count: int
    warnings: list[str] = Field(default=[])
    notes: list[str] = Field(default=[])  # worth knowing, but nothing to change: that it has no size, for example
    plan: PlanView | None = None  # of a job that needs several workers at once
    results: list[TaskResult] | None = None  # all of them, if the request waited and the job was over in a moment


class PlannedTask(Body):
    number: int
    command: list[str]
    parameters: dict[str, Scalar]


class Expected(Body):
    """Estimated seconds until a job would end if it were submitted now, with 50 % and 90 % probability."""

    p50_s: float
    p90_s: float


class Preview(Body):
    """Effect of a submission. ``tasks`` are the first ones; empty while their row file is missing."""

    task_count: int
    size: float | None  # reference CPU-seconds; null: it has none, so later jobs may finish first
    tasks: list[PlannedTask]
    warnings: list[str] = Field(default=[])
    expected: Expected | None = None  # null: unknown


class Reason(Body):
    """A reason for waiting, and the number of tasks that it concerns."""

    code: str
    count: int
    detail: str
    job: int | None = None  # the other job that is the reason


class Explanation(Body):
    """Explanation of the state of a job or task: a sentence for people, the reasons for programs."""

    subject: str  # "12" or "12.3"
    state: str
    sentence: str
    reasons: list[Reason] = Field(default=[])
