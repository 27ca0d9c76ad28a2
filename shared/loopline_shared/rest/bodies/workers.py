"""Bodies about workers and about the programs that they run."""

from __future__ import annotations

from pydantic import Field

from loopline_shared.model import AttemptId, Facts, Load, Prediction
from loopline_shared.protocol.power import SleepCause, SleepKind, WakeFacts
from loopline_shared.rest.bodies.base import Body
from loopline_shared.rest.times import Time


class LastHour(Body):
    """Work that a worker offered within the last hour, and the part that tasks used, in reference CPU-seconds."""

    used: float  # by attempts that ended with their tasks' results; little if there was little to do
    offered: float  # speed x slots offered now
    share: float | None  # used / offered; null: it offers no slots now
    slot_s: float  # that all its attempts took up, failed ones included
    tasks: int


class QuarantineView(Body):
    """Quarantine of a worker: the end of it and the reason."""

    until: Time
    reason: str


class SleepView(Body):
    """The sleep of a worker's computer: the present one, or the last."""

    since: Time | None  # asleep since then; null: it is awake
    kind: SleepKind  # state of the computer
    by: SleepCause  # why it sleeps
    can_be_woken: bool  # from this state; claimed only after a wake from it has succeeded
    obstacle: str  # why it cannot be woken, or why that is not known; empty: it can be woken
    wake_sent_at: Time | None  # magic packets were last sent to it, and it has not come; null: it is not being woken
    last_wake_at: Time | None  # the grid last began to wake it; null: it never has
    failed_wakes: int  # in a row
    woken_at: Time | None  # the grid woke it, and its owner has not been there since
    wake: WakeFacts | None  # its network card


class RunView(Body):
    """A task's successful run, as observed."""

    at: Time
    worker: str
    work: float  # reference CPU-seconds: time x speed x available share of the processor
    wall_s: float
    cpu_s: float
    system_s: float  # of these
    peak_memory_bytes: int
    share: float  # share of its slots that it had; at full share the work is work / share
    done: float | None  # work, by the speed that its worker was believed to have; null: as ``work``


class GpuUse(Body):
    """The attempt that has a GPU."""

    attempt: AttemptId
    user: str  # whose job it is


class WorkerView(Body):
    name: str
    mismatches: int = 0  # results of its that another worker's contradict
    overstated: int = 0  # reports of impossible times, memory, speed or cores, which were cut
    connected: bool
    draining: bool
    drain_reason: str = ""  # as an admin gave it; empty: none was given
    facts: Facts
    load: Load | None
    slots: int  # offered now
    slots_used: int
    running: list[AttemptId]
    waiting: list[AttemptId] = Field(default=[])  # prefetched until slots are free
    delivering: list[AttemptId] = Field(default=[])  # ended, their results on the way to the master
    joined_at: Time
    reported_at: Time | None
    lease_until: Time
    speed: float = 1.0  # reference CPU-seconds a second and slot, as its finished tasks have shown
    queue_s: float = 0.0  # sum of the expected remaining times of its attempts
    health: float = 0.0  # falls with failures on this worker only; at -3 it is quarantined
    quarantine: QuarantineView | None = None  # while it gets only tasks that no other worker can run
    half_open: bool = False  # after a quarantine: one attempt at a time
    last_hour: LastHour | None = None  # where asked for
    resources_used: dict[str, int] = Field(default={})  # units of its resources that tasks hold
    gpus_used: dict[str, list[GpuUse]] = Field(
        default={}
    )  # by id, as in facts.resources; load.withheld_gpus are not offered
    refused: str = ""  # why a link of its was refused lately, as for the version that it speaks
    left_out: dict[str, int] = Field(default={})  # units that it offers and its token does not allow
    sleep: SleepView | None = None  # null: it has never said good-bye for sleep
    twin: str = ""  # address of another computer that has its identity and was refused; empty: none lately


class ProgramView(Body):
    """Statistics about the runs of one program: jobs of one user, name and folder."""

    user: str
    name: str
    folder: str  # or the command's program, where jobs do not say a folder
    runs: int  # ever
    first_run_at: Time
    used_at: Time  # when it was last learnt from, or asked
    changed_at: Time | None  # when earlier runs were forgotten
    predicted: Prediction | None  # of one more task
    wall_s: float  # median, as all below, of the latest runs
    cpu_s: float
    system_s: float
    peak_memory_bytes: int
    workers: dict[str, int]  # where these ran
    latest: list[RunView]
