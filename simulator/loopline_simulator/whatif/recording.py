"""A recording of a live master's event log: external events, durations of attempts, and the fate of the jobs.

Only numbers and external events are kept (recorder.py reads the log).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace

from loopline_master.core.events import (
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    ShareChanged,
    WorkerDrained,
    WorkerJoined,
    WorkerLeft,
    WorkerUndrained,
)
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import Facts, Load, Order, Outcome, TaskId
from loopline_simulator.whatif.assign_times import AssignTimes
from loopline_simulator.whatif.tally import Tally


@dataclass(frozen=True, slots=True)
class Reported:
    """A report that matters: the first of a session, one with another load, or the last to renew a lease."""

    worker: str
    load: Load


@dataclass(frozen=True, slots=True)
class FellSilent:
    """The last sign of a worker's session whose end nobody reported."""

    worker: str


Steering = JobCancelled | JobPaused | JobResumed | JobRetried
FromOutside = (
    MasterStarted | JobSubmitted | Steering | WorkerJoined | WorkerLeft | WorkerDrained | WorkerUndrained
    | ShareChanged | Reported | FellSilent
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """External events of one step."""

    at: float  # seconds since the log began
    items: list[FromOutside]


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt and the time for which it took up its slot; a cancelled one would have taken longer."""

    task: TaskId
    worker: str
    start: float
    took_s: float
    outcome: Outcome
    _: KW_ONLY
    wall_s: float  # as its worker says: ``took_s`` without the ways there and back
    cpu_s: float


@dataclass(slots=True, kw_only=True)
class Recording:
    """A log in numbers. Times are in seconds since ``began`` (seconds since 1970)."""

    began: float = 0.0
    ended: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    facts: dict[str, Facts] = field(default_factory=dict)  # by worker, the latest
    loads: dict[str, list[tuple[float, Load]]] = field(default_factory=dict)  # by worker: from when on, as reported
    assigns: AssignTimes = field(default_factory=AssignTimes)
    apart: set[float] = field(default_factory=set)  # times of several steps, as virtual time has them
    tally: Tally = field(default_factory=Tally)
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    scheduler: Scheduler = field(default_factory=Scheduler)  # as it was at the end


def rebased(settings: SchedulerSettings, policy: str | None, order: str | None) -> SchedulerSettings:
    """Return the recorded settings with another policy or order."""
    chosen = replace(settings, policy=policy or settings.policy)
    return replace(chosen, order=Order(order)) if order else chosen
