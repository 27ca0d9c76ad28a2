"""Bodies about the grid as a whole: reports, usage, pruned files, changes and health."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from loopline_shared.model import Name, Order, OrderWithin
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.rest.bodies.base import Body
from loopline_shared.rest.times import Time


class MomentReport(Body):
    """Accuracy of the ETAs given at a percentage of a job's finished tasks (0: at the first)."""

    moment: int
    jobs: int  # that have completed since
    p50_held: float | None = None  # share of them that had completed by then
    p90_held: float | None = None


class BrokenPlan(Body):
    """A promised start of a gang that was not kept."""

    job: int
    task: int
    promised_at: Time  # the first promise
    started_at: Time | None  # null: it has not started yet
    reason: str


class PlanReport(Body):
    """Record of planned starts: of the latest gangs that have started, or whose promise was broken."""

    promises: int = 0
    kept: int = 0
    early_p50_s: float | None = None  # how much sooner than first promised they started, in one of two cases
    broken: list[BrokenPlan] = Field(default=[])  # the latest first
    estimates: int = 0  # gangs whose first plan was none but an estimate
    p50_held: float | None = None  # share of them that had started by then
    p90_held: float | None = None
    delayed: int = 0  # gangs whose estimate what went before them made later, once at least


class ForecastReport(Body):
    moments: list[MomentReport]
    plans: PlanReport = PlanReport()


class Passing(Body):
    """Job ``job`` completed before ``passed``, which came first and is not larger."""

    job: int
    passed: int
    reason: str | None  # why that was allowed; null: it was not, and is a bug


class Flaw(Body):
    """An exemption with insufficient evidence; it excuses no passing."""

    job: int
    reason: str  # paused, stalled, overdrawn
    flaw: str  # the contradiction between its evidence and the stored rows


class PassingReport(Body):
    """The audit of the order guarantee: each completion checked against the stored rows."""

    order: Order  # in force for jobs submitted now
    within: OrderWithin = OrderWithin.GRID  # the jobs among which it is guaranteed, likewise
    completions: int  # checked
    passings: int  # and unfounded exemptions; must be 0
    excused: dict[str, int]  # exempt pairs, by reason: paused, stalled, overdrawn, other-user
    latest: list[Passing]
    unfounded: list[Flaw] = Field(default=[])  # the latest exemptions with insufficient evidence


HistorySubject = Literal["user", "worker", "job"]
HistorySort = Literal["cpu", "energy"]


class EnergyUse(Body):
    """Energy of attempts, as far as it was measured or declared."""

    useful_kwh: float  # of attempts whose results count, and of the part of others that a checkpoint kept
    wasted_kwh: float  # of the rest
    by_source: dict[EnergySource, float]  # kWh by how they were found: figures of sources cover different things


class HistoryLine(Body):
    """Usage by one user, worker or job: its attempts that ended within a time."""

    subject: str
    name: str  # a job's; else empty
    jobs: int
    tasks: int  # that they completed
    attempts: int
    wall_s: float  # on workers' slots
    useful_cpu_s: float  # of results that were accepted
    replicated_cpu_s: float  # of replicas, whether they won or lost
    wasted_cpu_s: float  # of attempts made superfluous by another one of their task
    lost_cpu_s: float  # of attempts that failed, were lost, preempted or cancelled with their job
    kept_cpu_s: float = 0.0  # of attempts without a result, as far as a checkpoint has it
    checkpoints: int = 0  # sent to the master
    checkpoint_bytes: int = 0  # sent with them
    checkpoint_held_s: float = 0.0  # time that tasks were stopped for them
    energy: EnergyUse | None = None  # null: nothing was measured or declared


class HistoryReport(Body):
    since: Time
    until: Time
    co2_grams_per_kwh: float | None = None  # of the electricity; null: the operator has not said
    lines: list[HistoryLine]
    energy: EnergyUse | None = None  # of all users, listed or not; null: nothing was measured or declared


class LimitUse(Body):
    """Use of a limited quantity by a user."""

    what: str  # jobs, tasks, spec_bytes, slots, listeners, file_bytes
    used: int
    allowed: int  # the limit


class UserShare(Body):
    user: str  # as in their token
    share: float  # as the operator set it; of two users who want all, each gets slots in this proportion
    due: float | None  # of all slots, while those ask who have jobs in the grid now; null: the user has none
    used_s: float  # slot-seconds; they halve with each half-life
    used: float | None  # share of the use of all users; null: no use yet
    slots: int  # in use now; 0 while no account is kept
    jobs: int  # in the grid
    limits: list[LimitUse] = Field(default_factory=list)  # their use of each limit


class SharesView(Body):
    """Use against share, in the order of turns."""

    is_kept: bool  # false: there is one user, or the master was started with shares off
    half_life_s: float  # time after which half of the use is forgotten
    users: list[UserShare]  # in the order of their turns


class LimitView(Body):
    """A limit of units that tasks may hold at once: for the grid, for one user, or for each user."""

    name: Name
    user: str | None  # whom it applies to; null: the whole grid, or each user
    per_user: bool  # it applies to each user without a limit of their own
    units: int  # that tasks may hold at once
    used: dict[str, int]  # units in use, by user
    note: str = ""  # about the command that sets it, and its failure; empty without one


class LimitsView(Body):
    limits: list[LimitView]  # by name
    unset: dict[str, str] = Field(default={})  # limits whose commands have never worked, with the reason


class LimitRequest(Body):
    """A limit for one user, for each user without one of their own, or for the whole grid."""

    units: Annotated[int, Field(ge=0, le=1_000_000)]  # that tasks may hold at once
    user: Name | None = None  # for this user only
    per_user: bool = False  # for each user without a limit of their own

    @model_validator(mode="after")
    def _is_for_one_or_each(self) -> Self:
        if self.user is not None and self.per_user:
            raise ValueError("give either user or per_user")
        return self


class ShareRequest(Body):
    share: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]  # all begin with 1


class DemandLine(Body):
    """Tasks with equal requirements that could start now, without held, paused and limited ones."""

    os: str | None = None
    memory_bytes: int = 0  # of one task
    labels: list[Name] = Field(default_factory=list)
    slots: int = 1  # of one task on one worker
    network: bool = False  # tasks use it
    python: str | None = None
    folder: str = ""  # that workers share; empty: none
    software: str = ""  # packages or an image, as workers name what they can provide
    nodes: int = 1  # workers that one task needs at once
    needs: dict[Name, int] = Field(default_factory=dict)  # units of workers' resources, GPUs among them, of one task
    jobs: int = 0
    tasks: int = 0  # that could start at once, if there were free slots
    coming: int = 0  # of these tasks, that computers which are being woken will begin
    waiting: int = 0  # more that wait at busy workers, and could begin at once elsewhere
    workers: int = 0  # that could run such a task, busy ones included
    expected_s: float | None = None  # of one task of the job with the shortest, at speed 1; null: nothing is known


class DemandView(Body):
    slots: int  # that it would occupy, without the tasks that computers which are being woken will begin
    demands: list[DemandLine]  # in the order of their jobs' arrival


class Spread(Body):
    """Spread of the times that something took."""

    p50_s: float  # in half of the cases within this, in seconds
    p99_s: float
    most_s: float  # the longest, in seconds


class StepTimes(Body):
    """The latest steps of the scheduler: at most 1,000."""

    count: int  # steps
    step: Spread | None  # decided and on disk; null: there was none
    commit: Spread | None  # the part of it spent on writing
    waiting: int  # events that had come by the end of the latest one
    most_waiting: int  # ... and at most


class Sizes(Body):
    """Size and growth of the master's data."""

    database_bytes: int  # with the event log in it
    files_bytes: int  # in the folder of files, as measured every quarter of an hour
    disk_free_bytes: int
    log_entries: int  # of the event log
    log_began_at: Time | None  # its first entry; null: it is empty
    log_bytes: int  # of the event log, written since the start
    stored_a_day: float | None  # growth of database and files in bytes; null: it is too early to say
    log_a_day: float | None  # bytes of the event log; null: likewise


class UserCost(Body):
    """Cost of one user to the master within the last hour."""

    user: str  # empty: costs of workers
    step_s: float  # time of steps about their jobs
    requests: int  # that they made
    jobs: int  # in the grid
    tasks: int  # that have not ended


class MasterView(Body):
    """Health of the master."""

    version: str
    started_at: Time
    lag_s: float  # how late the event loop was, last time it was measured
    steps: StepTimes  # how long the latest took
    sizes: Sizes  # of its data
    users: list[UserCost]  # the heaviest first, at most 50


class PruneRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    older_than_s: Annotated[
        float | None, Field(ge=0, le=1e10, allow_inf_nan=False, description="also files of jobs ended this long ago")
    ] = None
    delete: bool = Field(default=False, description="false: only say what there is")


class PruneReport(Body):
    """Unused files: removed, or to be removed."""

    deleted: bool
    job_count: int  # whose files are not kept any more
    jobs: list[int]  # the first of them
    files: int
    bytes: int
    uploads: int  # interrupted and not resumed
    upload_bytes: int
    older_than_s: float | None
    grace_s: float  # younger files stay


class GridChange(Body):
    """A server-sent event: changes since the previous one; ``missed`` is true if more changed than is named."""

    jobs: list[int] = Field(default=[])
    workers: list[str] = Field(default=[])
    missed: bool = False


class Health(Body):
    status: Literal["ok"]
