"""The scheduler's entities. Each is stored as one row, with a column for each field of its constructor.

The rest of the scheduler's knowledge is an index (index.py): a function of the entities, never of history.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated

from pydantic import Field, SkipValidation

from loopline_master.core.kernel.runs import Observation, ProgramKey, Runs, key_of
from loopline_shared.model import (
    AttemptId,
    AttemptState,
    Facts,
    JobState,
    Load,
    Order,
    OrderWithin,
    Output,
    OutputFile,
    Phases,
    Prediction,
    SizeSource,
    TaskId,
    TaskState,
)
from loopline_shared.protocol.attempt_figures import Joules
from loopline_shared.protocol.gpus import COMPUTER
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import Sweep

LIVE = (
    AttemptState.DISPATCHED, AttemptState.PREFETCHED, AttemptState.PREPARED,
    AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.DELIVERING,
)  # fmt: skip
"""States of an attempt that may still bring its task's result, as far as is known."""
SEATED = (
    AttemptState.DISPATCHED, AttemptState.PREPARED, AttemptState.RUNNING, AttemptState.FROZEN,
    AttemptState.CANCELLING,
)  # fmt: skip
"""States of an attempt that takes up slots on its worker."""
UNSEATED = (AttemptState.PREFETCHED, AttemptState.RETRACTING)
"""States of an attempt that waits at its worker for a slot, as far as is known."""
OCCUPYING = (*SEATED, *UNSEATED, AttemptState.DELIVERING)
"""States of an attempt that is on its worker."""

_new = tuple.__new__
"""Makes an id at half the cost of a call: thousands are made each second."""

SessionKey = tuple[str, str]
"""A session: its user, and the identifier that its client chose."""

Needs = tuple[tuple[str, int], ...]
"""Units that each attempt of a job holds, by the names of limits or of workers' resources, in alphabetical order."""

UNRELEASED = 0
"""Job.arrival of a job that has never entered the grid: it waits for other jobs, or was cancelled while it waited."""

_LIVE_JOB = (JobState.QUEUED, JobState.RUNNING)
_OPEN_TASK = (TaskState.QUEUED, TaskState.RUNNING)

Freeze = tuple[float, float | None]
"""Start and end of a freeze; the end is None while the attempt is frozen."""
MAX_FREEZES = 50
"""Number of an attempt's latest freezes that are kept."""

MAX_TAKEN_DOWN = 3
"""A task that took down workers this many times fails (trust.py)."""

UNKNOWN_WEIGHT = 1e300
"""Weight of a job without a size or measurements: it may not pass any job that has a size."""


@dataclass(slots=True)
class Grid:
    """Counters of the whole grid, and the pointers of policies that take turns."""

    next_job: int = 1
    restored_jobs: int = 0  # jobs below this number existed at the latest restore of the database ...
    attempts_skipped: int = 0  # ... and their later attempts have numbers above this
    sequence: int = 0  # counts arrivals and departures of jobs together, so that they can be ordered
    pointer: int = 0  # the turn used last (round robin)
    now: float = 0.0  # time of the last step; seconds since 1970
    last_start: float = 0.0  # when an attempt was last dispatched
    virtual: float = 0.0  # clock of fair sharing, in reference CPU-seconds of each job's share
    measured: int = 0  # attempts at tasks of given size that were accepted
    work_accepted: float = 0.0  # of the tasks that succeeded
    tasks_accepted: int = 0
    last_worker: str = ""  # worker of the last dispatched attempt (policy cyclic)
    gangs_came: int = 0  # gangs that have been planned ...
    gang_limits_s: float = 0.0  # ... and the sum of their limits
    gang_ran_s: float = 0.0  # sum of the run times of members that ended ...
    gang_allowed_s: float = 0.0  # ... and of their limits
    plan_cursor: int | None = None  # start reached by the pass over the plans; None: no pass is running ...
    plan_cursor_job: int = 0  # ... and the job
    plan_again: bool = False  # a slot was freed since the pass began
    looked_at: float = 0.0  # when the jobs that hold others were last checked: are they overdrawn?
    idle_looked_at: float = 0.0  # ... do they make progress (wings/exemptions/idle_budget.py)?
    wakes_planned_at: float = 0.0  # when it was last decided which computers to wake (wings/power) ...
    wakes_due_at: float | None = None  # ... and when it is decided next, without an event; None: not before one
    units_withheld_until: float | None = 0.0
    """No attempt that holds units starts before: attempts of an earlier life may hold them. None: not known before
    the master starts."""


def most_failed(max_fails: int | str | None, task_count: int) -> int | None:
    """Return the number of failed tasks that stops a job, at least one; None: unlimited."""
    if max_fails is None or isinstance(max_fails, int):
        return max_fails
    return max(1, math.ceil(Fraction(max_fails.removesuffix("%")) * task_count / 100))


@dataclass(frozen=True, slots=True)
class MeasuredWork:
    """Work of an attempt without a result, as its worker's Reports show it."""

    task: int
    attempt: int
    worker: str
    seconds: float  # from its start to that worker's last Report, frozen time excluded
    speed: float  # of the worker, in reference CPU-seconds a second
    heard_at: float  # time of that Report

    @property
    def work(self) -> float:
        """Return the work in reference CPU-seconds."""
        return self.seconds * self.speed


@dataclass(slots=True)
class Job:
    id: int
    owner: str
    spec: JobSpec
    task_count: int
    size: float | None  # reference CPU-seconds; fixed while the job is in the grid; None: it has no claim
    order: Order
    max_attempts: int
    max_replicas: int | None  # None: unlimited
    arrival: int  # Grid.sequence when it (last) entered the grid; UNRELEASED: not yet
    submitted_at: float
    idempotency_key: str | None = None
    tag: float = 0.0  # virtual finishing time under fair sharing; fixed as it enters the grid
    work_done: float = 0.0  # of its tasks that succeeded, in reference CPU-seconds
    state: JobState = JobState.QUEUED
    paused: bool = False
    starved_since: float | None = None  # no connected worker can run it since then
    stalled: bool = False  # starved for stall_after_s, or its idle budget is spent: holds no other job
    cursor: int = 0  # the task that had the last turn (round robin)
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    held_at: float | None = None  # its last never-started task (or its delivery) was first held back then
    released_at: float | None = None  # its last never-started task was started; or it was delivered
    started_at: float | None = None
    finished_at: float | None = None
    departure: int | None = None  # Grid.sequence when it left the grid
    inputs: str | None = None  # SHA-256 of the file that lists the files in the scratch folders of its tasks
    waiting_for: tuple[int, ...] = ()  # jobs that have yet to succeed before it enters the grid
    entered_at: float | None = None  # when it (last) entered the grid
    log_mean: float = 0.0  # of ln(work) of its tasks that succeeded; per unit of size if sizes were given
    log_m2: float = 0.0  # ... and the sum of its squared deviations
    mismatches: int = 0  # tasks with differing results
    useful_cpu_ms: int = 0  # CPU time of attempts whose results count (measure.py) ...
    replicated_cpu_ms: int = 0  # ... of replicas, however they ended
    won_cpu_ms: int = 0  # ... of replicas that brought their task's result
    wasted_cpu_ms: int = 0  # ... of attempts made superfluous by another attempt of their task
    lost_cpu_ms: int = 0  # ... of attempts that failed, were lost or were preempted
    size_source: SizeSource = SizeSource.UNKNOWN
    predicted: Prediction | None = None  # for one task without a size, at the job's submission
    within: OrderWithin = OrderWithin.GRID  # the jobs among which ``order`` is guaranteed
    nodes: int = 1  # as its spec asks; with more than 1 each task is a gang
    used: float = 0.0  # measured work of its tasks' results and failures, in reference CPU-seconds ...
    counted: float = 0.0  # ... the part that counts against its size: at speeds that are proven, or at most 1
    overdrawn: bool = False  # has used many times its size (wings/exemptions/overdrawn.py): holds no other job
    spec_bytes: int = 0  # of its spec as JSON; 0: submitted to a release that did not count them
    confirmed: int = 0  # attempts in a row that took about as long as expected (wings/shares/queues.py)
    exempt_since: float | None = None  # start of its present exemption: since then it has held no other job
    shown: float | None = None  # of a job without a size: its weight, measured on its tasks; only falls
    idle_s: float = 0.0  # spent part of its idle budget (wings/exemptions/idle_budget.py)
    most_used: float = 0.0  # the maximum of the measured work while it held others
    longest: float = 0.0  # largest work of an attempt that disproves the expected work of its tasks; 0: none does
    proof: tuple[MeasuredWork, ...] = ()  # attempts without a result that, with ``used``, proved it overdrawn
    turn: int = 0  # place in a policy's round: its arrival; in a session, the arrival of the session's first job
    max_running: int | None = None  # attempts that may run at once; None: unlimited
    reserved: str = ""  # the worker that is kept for its next task, which is wide (wings/reservations)
    by_reservation: int = 0  # its latest task that started by a reservation or with units set aside; 0: none
    sweep: Annotated[SkipValidation[Sweep], Field(exclude=True)] = field(init=False, repr=False, compare=False)
    runs: Annotated[SkipValidation[Runs], Field(exclude=True)] = field(init=False, repr=False, compare=False)
    slots: Annotated[int, Field(exclude=True)] = field(init=False, repr=False, compare=False)  # as its spec requires
    quorum: Annotated[int | None, Field(exclude=True)] = field(init=False, repr=False, compare=False)  # of its spec
    budget_s: Annotated[float | None, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    program: Annotated[ProgramKey, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    needs: Annotated[Needs, Field(exclude=True)] = field(init=False, repr=False, compare=False)  # of its spec
    most_failed: Annotated[int | None, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    session: Annotated[SessionKey | None, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    exclusive: Annotated[bool, Field(exclude=True)] = field(init=False, repr=False, compare=False)  # as in its spec
    is_wide: Annotated[bool, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    """A task needs several units of one worker at once (wings/reservations)."""
    never_twice: Annotated[bool, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    """Its spec asks for at most one attempt of a task at a time. So a task waits until its last attempt is gone."""
    saved: Annotated[dict[int, tuple[float, float]] | None, Field(exclude=True)] = field(
        default=None, init=False, repr=False, compare=False
    )
    """By task: work in its newest checkpoint, in reference CPU-seconds, and its progress then (0: unknown).

    None: there are no checkpoints.
    """

    def __post_init__(self) -> None:
        spec, self.sweep, self.program = self.spec, Sweep(self.spec), key_of(self.owner, self.spec)
        self.runs = Runs(self.owner, spec, self.sweep, self.inputs)
        self.slots, self.quorum, self.budget_s = spec.requires.slots, spec.quorum, spec.replica_budget_s
        self.most_failed = most_failed(spec.max_fails, self.task_count)
        self.session = None if spec.session is None else (self.owner, spec.session)
        self.needs = spec.requires.units
        self.exclusive = spec.requires.exclusive
        has_wide_needs = any(units > 1 or name == COMPUTER for name, units in self.needs)
        self.is_wide = spec.nodes == 1 and (self.slots > 1 or has_wide_needs)
        self.never_twice = spec.max_replicas == 1 and spec.nodes == 1

    def task_id(self, number: int) -> TaskId:
        return _new(TaskId, (self.id, number))

    def slots_on(self, worker: Worker) -> int:
        """Return the slots that an attempt takes on this worker."""
        return worker.facts.slots if self.exclusive else self.slots

    @property
    def holds_units(self) -> bool:
        """True if its attempts hold units of something countable while they may be running (wings/resources)."""
        return bool(self.needs) or self.max_running is not None

    @property
    def weight(self) -> float:
        """Size of the job when earlier jobs are compared with it; without one, the size measured on its tasks."""
        if self.size is not None:
            return self.size
        return UNKNOWN_WEIGHT if self.shown is None else self.shown

    @property
    def has_claim(self) -> bool:
        """True if later jobs of at least its size wait for it: it has a size and an order, and is not exempt."""
        return self.size is not None and self.order is not Order.NONE and not self.is_exempt

    @property
    def is_live(self) -> bool:
        """True if the job is in the grid."""
        return self.state in _LIVE_JOB

    @property
    def is_over(self) -> bool:
        return self.departure is not None

    @property
    def is_computed(self) -> bool:
        """True if all tasks of the job have succeeded or failed."""
        return self.succeeded + self.failed == self.task_count

    @property
    def is_failing(self) -> bool:
        """True if its limit of failed tasks is reached: the remaining tasks are not run."""
        return self.most_failed is not None and self.failed >= self.most_failed and not self.is_computed

    def is_no_smaller(self, earlier: Job) -> bool:
        """True if the earlier job has a size, and this job weighs at least as much."""
        return earlier.size is not None and earlier.size <= self.weight

    def is_ordered_after(self, earlier: Job) -> bool:
        """True if this job's order guarantee covers an earlier one, apart from sizes."""
        return self.within is OrderWithin.GRID or earlier.owner == self.owner

    @property
    def is_exempt(self) -> bool:
        """True if the job is paused, stalled or overdrawn: it holds no other job."""
        return self.paused or self.stalled or self.overdrawn

    @property
    def exempt_reason(self) -> str:
        """The reason why the job holds no other job; empty if it may hold others."""
        return "paused" if self.paused else "stalled" if self.stalled else "overdrawn" if self.overdrawn else ""


@dataclass(frozen=True, slots=True)
class Vote:
    """The digest of an attempt's result, to be compared with those of other attempts."""

    attempt: int
    worker: str
    digest: str  # of its result (trust.py)
    cpu_ms: int  # counted for its job once its task is decided


@dataclass(slots=True)
class Task:
    """A task that has been started; a fresh task is only a number (State.fresh)."""

    job: int
    number: int
    state: TaskState = TaskState.QUEUED
    started: bool = False  # since its job (last) entered the grid
    attempts: int = 0  # attempts made
    failures: int = 0  # attempts that failed through the task's own fault
    failed_on: tuple[str, ...] = ()  # workers where it failed through its own fault, the latest last
    took_down: tuple[str, ...] = ()  # workers whose agent or sandbox it took down (trust.py), one name per time
    winner: int | None = None  # number of the attempt whose result was accepted
    votes: tuple[Vote, ...] = ()  # for its job's quorum; without one, the winner's, if others were running
    mismatch: bool = False  # two of its results differ
    verdict: str = ""  # why it failed, if no attempt gives the reason
    started_at: float | None = None
    finished_at: float | None = None
    retry_at: float | None = None  # after a failure: no attempt starts before then (``retry_delay_s`` of its job)
    id: Annotated[TaskId, Field(exclude=True)] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.id = _new(TaskId, (self.job, self.number))

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN_TASK

    @property
    def agreeing(self) -> int:
        """The largest number of its results that agree."""
        return max(Counter(vote.digest for vote in self.votes).values(), default=0)

    @property
    def setbacks(self) -> int:
        """Number of its attempts that failed through its own fault, plus its results that others contradict."""
        return self.failures + len(self.votes) - self.agreeing

    def may_be_tried(self, job: Job, alive: int) -> bool:
        """True if one more attempt may start beside ``alive`` ones (of a gang: launches), even if all of these fail.

        A quorum allows as many more as must still agree with the first. For functions only failures are limited: a
        call may run on several workers, as in other pools, and must not stay frozen while other workers are free.
        """
        if job.spec.function is not None:
            return self.setbacks < job.max_attempts
        setbacks, missing = self.setbacks, max(0, (job.quorum or 1) - 1 - self.agreeing)
        return setbacks < job.max_attempts and setbacks + alive < job.max_attempts + missing

    @property
    def is_dangerous(self) -> bool:
        """True if ``MAX_TAKEN_DOWN`` agents died while it ran, on at least two workers: it is not tried again."""
        return len(self.took_down) >= MAX_TAKEN_DOWN and len(set(self.took_down)) > 1


@dataclass(slots=True)
class Attempt:
    job: int
    task: int
    number: int
    worker: str
    slots: int
    replica: bool  # another attempt of the task was alive when this one was started
    dispatched_at: float
    state: AttemptState = AttemptState.DISPATCHED
    expected_s: float = 0.0  # expected run time, at dispatch
    asked: bool = False  # started because its job's quorum needs it
    freezes: tuple[Freeze, ...] = ()  # the latest MAX_FREEZES, as its worker reported them
    waited_s: float = 0.0  # time that it was prefetched before it began
    sent: int = 0  # the Assign of this session that carried its last command; 0: none yet
    started_at: float | None = None
    ended_at: float | None = None  # None while lost: it may come back with its worker
    accepted: bool = False
    exit_code: int | None = None
    reason: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    assumed_cpu_ms: int = 0  # CPU time that its job counts as lost until a result is known
    late: bool = False  # its result came after it had been forgotten
    stdout: Output | None = None
    stderr: Output | None = None
    outputs: tuple[OutputFile, ...] | None = None
    value: Output | None = None  # of a function
    system_s: float = 0.0  # of cpu_s
    metrics: dict[str, int | float] | None = None  # reported by the task
    slot: int | None = None  # the lowest of its slots, as reported by its worker; None: not reported
    phases: Phases | None = None  # as its worker reported; None: it ran without a pause once it had its slot
    work: float = 0.0  # work done, in reference CPU-seconds, if its result was accepted or it failed
    is_set_up: bool = True  # its inputs and its software are there, as last reported
    fetch_s: float = 0.0  # until they were there; as last reported, or as this and the next two are in ``phases``
    frozen_s: float = 0.0  # time that it was frozen
    deliver_s: float = 0.0  # from the end of its processes until the master had its outputs
    term_s: float | None = None  # its worker ends it after a silence of the master this long; None: it does not
    gpus: tuple[str, ...] | None = None  # ids of its GPUs; None: its job asks for no GPU
    done_before: float = field(default=0.0, init=False, repr=False, compare=False)
    """Work in the checkpoint that it continued from, in reference CPU-seconds."""
    kept_cpu_ms: int = field(default=0, init=False, repr=False, compare=False)
    """CPU time of it that is not lost with it, because a checkpoint has it."""
    joules: Joules = field(default=None, init=False, repr=False, compare=False)
    """Energy in its result, until the wing *energy* has noted it."""
    id: AttemptId = field(init=False, repr=False, compare=False)
    task_id: TaskId = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.id = _new(AttemptId, (self.job, self.task, self.number))
        self.task_id = _new(TaskId, (self.job, self.task))

    @property
    def since(self) -> float:
        """Time when the attempt began, as far as is known; a prefetched attempt may begin at any moment."""
        return self.dispatched_at + self.waited_s

    @property
    def is_queued(self) -> bool:
        """True if the attempt is prefetched: it waits at its worker for a slot and can be retracted without loss."""
        return self.state is AttemptState.PREFETCHED

    @property
    def is_seated(self) -> bool:
        """True if the attempt takes up slots of its worker."""
        return self.state in SEATED

    @property
    def is_over(self) -> bool:
        """True if the attempt has ended and will not come back, so that the scheduler forgets it."""
        return self.ended_at is not None

    @property
    def stands_still(self) -> bool:
        """True if its worker last reported it frozen; an attempt that is being cancelled may be frozen, too."""
        return bool(self.freezes) and self.freezes[-1][1] is None

    def freeze(self, now: float) -> None:
        self.freezes = (*self.freezes, (now, None))[-MAX_FREEZES:]

    def thaw(self, now: float) -> None:
        """End the present freeze, if any: the attempt continues, or has ended."""
        if self.stands_still:
            self.freezes = (*self.freezes[:-1], (self.freezes[-1][0], now))


@dataclass(slots=True)
class Worker:
    name: str
    boot: str
    facts: Facts
    joined_at: float
    lease_until: float
    kept_until: float | None = None  # its lease is extended to then, because its computer sleeps; None: it is not
    session: int | None = None  # number of its open link; None: not connected
    draining: bool = False
    drain_reason: str = ""  # as its operator gave it; empty: none was given, or the worker is not draining
    load: Load | None = None  # of the last report
    reported_at: float | None = None
    offered: int = 0  # slots; 0 until the first report of a session
    reported: int = 0  # number of the last Report of this session; 0 before the first
    assigned: int = 0  # number of the last Assign of this session
    work_done: float = 0.0  # by its successful attempts, in reference CPU-seconds, judged by others' runs ...
    work_s: float = 0.0  # ... in this many slot-seconds, without the owner's part; older runs fade
    mismatches: int = 0  # its results that another worker's contradict
    overstated: int = 0  # results or facts with impossible figures (kernel/sessions/figures.py)
    health: float = 0.0  # falls with failures that happened here and not elsewhere, rises with successes
    quarantines: int = 0  # level that sets how long the next quarantine lasts
    quarantined_until: float | None = None  # gets no new work until then if other workers could take it
    quarantine_reason: str = ""  # of the last one
    half_open: bool = False  # back from quarantine: one attempt at a time until one has succeeded

    @property
    def is_available(self) -> bool:
        return self.session is not None and not self.draining

    @property
    def given_up_at(self) -> float:
        """Time when its attempts are lost, unless it has reported by then."""
        return self.lease_until if self.kept_until is None else max(self.lease_until, self.kept_until)

    @property
    def is_trusted(self) -> bool:
        """True if the worker is available, offers slots and is not in quarantine."""
        return self.is_available and self.offered > 0 and self.quarantined_until is None


@dataclass(slots=True)
class Program:
    """Past runs of one user's program: an entry of the job database (docs/design/dynamic-load.md)."""

    owner: str
    name: str  # of the jobs ...
    folder: str  # ... and the folder they were submitted from, or the command's program if they name none
    first_run_at: float
    used_at: float  # when it was last used for learning or a prediction: the longest unused is forgotten first
    runs: int = 0  # ever
    window: tuple[Observation, ...] = ()  # the latest, since the program last changed
    strange: int = 0  # number of observations at its end that are unlike those before
    changed_at: float | None = None  # time of the last restart of the window
    recorded: float | None = None  # work of one task, as last used for a job's size
    works: list[float] = field(init=False, repr=False, compare=False)  # of the window, in ascending order ...
    wholes: list[float] = field(init=False, repr=False, compare=False)  # ... divided by the runs' shares
    predicted: Prediction | None = field(default=None, init=False, repr=False, compare=False)  # from the window
    reference: tuple[float, float] | None = field(default=None, init=False, repr=False, compare=False)  # the same
    wanted: float | None = field(default=None, init=False, repr=False, compare=False)  # the same
    key: ProgramKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.key = (self.owner, self.name, self.folder)
        self.works = sorted(run.work for run in self.window)
        self.wholes = sorted(run.work / run.share for run in self.window)
