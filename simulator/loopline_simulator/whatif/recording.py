"""A recording of a live master's event log: external events, durations of attempts, and the fate of the jobs.

The log is stepped through a fresh scheduler as it is read; only numbers and external events are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from loopline_master.core.events import (
    Batch,
    CheckpointsRecalled,
    Event,
    JobCancelled,
    JobLimited,
    JobPaused,
    JobResumed,
    JobRetried,
    JobsForgotten,
    JobSubmitted,
    LimitChanged,
    MasterStarted,
    MasterStoodStill,
    NetworkChanged,
    SchedulerSettings,
    ShareChanged,
    SnapshotWritten,
    TransfersPlanned,
    WakeRequested,
    WorkerDrained,
    WorkerForgotten,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkersHeard,
    WorkerUndrained,
)
from loopline_master.core.kernel.effects import Declined, Effects
from loopline_master.core.kernel.entities import UNSEATED, Attempt
from loopline_master.core.kernel.sessions import figures
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_shared.errors import LooplineError
from loopline_shared.model import Facts, Load, Order, Outcome, Result, TaskId
from loopline_shared.protocol.worker_link import Report
from loopline_simulator.whatif.assign_times import AssignTimes
from loopline_simulator.whatif.tally import Tally

AT_ONCE_S = 0.25
"""An attempt that began within this time after the end of another, at the same worker, took over its slot."""
_MOST_FREED = 64


@dataclass(frozen=True, slots=True)
class Reported:
    """A report that matters: the first of a session, one with another load, or the last to renew a lease."""

    worker: str
    load: Load


@dataclass(frozen=True, slots=True)
class FellSilent:
    """The last sign of a worker's session whose end was not reported."""

    worker: str


Steering = JobCancelled | JobPaused | JobResumed | JobRetried | JobLimited | CheckpointsRecalled
FromOutside = (
    MasterStarted | JobSubmitted | Steering | WorkerJoined | WorkerLeft | WorkerDrained | WorkerUndrained
    | ShareChanged | LimitChanged | Reported | FellSilent
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """External events of one step."""

    at: float  # seconds since the log began
    items: list[FromOutside]


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt and the time that it occupied its slot; a cancelled one would have taken longer."""

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


def record(batches: Iterable[Batch | Snapshot]) -> Recording:
    """Read a log, which may begin at a snapshot. Raises LooplineError if the scheduler cannot follow it.

    Jobs from before the snapshot are left out: the results of their earlier tasks are unknown.
    """
    recorder, before = _Recorder(), set[int]()
    for batch in batches:
        if isinstance(batch, Snapshot):
            recorder.go_on_from(batch)
            before = {job.id for job in batch.jobs}
        else:
            recorder.add(batch)
    recording = recorder.finished()
    for job in before:
        recording.tally.jobs.pop(job, None)
    return recording


class _Recorder:
    def __init__(self) -> None:
        self._recording = Recording()
        self._sessions: dict[str, tuple[int, float]] = {}  # open ones: number, since when
        self._kept: dict[str, tuple[float, Load]] = {}  # of open sessions: the last report kept
        self._heard: dict[str, float] = {}  # the last report that was not kept, if there is one since
        self._boots: dict[str, tuple[str, float]] = {}  # by worker: the agent's boot, since when
        self._freed: dict[str, list[float]] = defaultdict(list)  # by worker: when a slot became free and stayed so
        self._is_first, self._has_changed, self._before = True, False, 0.0

    def go_on_from(self, snapshot: Snapshot) -> None:
        self._recording.scheduler = Scheduler(snapshot)

    def add(self, batch: Batch) -> None:
        if self._is_first:
            self._recording.began, self._is_first = batch.now, False
        before = self._before = self._recording.ended
        now = max(before, batch.now - self._recording.began)
        self._recording.ended = now
        if now == before:
            self._recording.apart.add(now)
        results = [self._spans(event, now) for event in batch.events if isinstance(event, WorkerReported)]
        effects = self._step(batch)
        self._has_changed = bool(effects.attempts)
        items: list[FromOutside] = []
        for event, reply in zip(batch.events, effects.replies, strict=True):
            if not isinstance(reply, Declined):
                items += self._outside(event, now)
        for spans in results:
            self._recording.spans += spans
        if items:
            self._recording.moments.append(Moment(now, items))
        self._close(effects, batch)
        self._recording.assigns.note(batch, effects, now)
        self._recording.tally(effects)

    def finished(self) -> Recording:
        self._bridge_all(self._recording.ended)
        for worker in list(self._heard):
            self._keep_last(worker)
        recording = self._recording
        recording.moments.sort(key=lambda moment: moment.at)  # a silence is noticed later
        if recording.tally.jobs and not any(job.is_live for job in recording.tally.jobs.values()):
            _keep_machines(recording)
        return recording

    def _step(self, batch: Batch) -> Effects:
        try:
            return self._recording.scheduler.step(batch.events, batch.now)
        except (KeyError, AssertionError) as error:
            message = f"the scheduler cannot follow the log: {type(error).__name__}: {error}"
            hint = "was it written by another version? `loopline replay DATABASE` compares it with the rows"
            raise LooplineError("log", message, hint) from error

    def _outside(self, event: Event, now: float) -> list[FromOutside]:
        """Return the external part of an event."""
        match event:
            case MasterStarted(settings):
                self._bridge_all(self._before)
                self._recording.settings = settings
                self._sessions.clear()
                self._heard.clear()
            case WorkerJoined(worker, session, boot, facts):
                self._sessions[worker] = (session, now)
                if self._boots.get(worker, ("", 0.0))[0] != boot:
                    self._boots[worker] = (boot, now)
                    self._freed[worker].clear()
                self._keep_last(worker)
                self._recording.assigns.forget(worker)
                self._kept.pop(worker, None)
                self._recording.facts[worker] = facts
            case WorkerLeft(worker, session):
                if self._sessions.get(worker, (None,))[0] != session:
                    return []
                self._keep_last(worker)
                del self._sessions[worker]
            case WorkerReported(worker, session, report):
                return self._reported(worker, session, report, now)
            case WorkersHeard(ago_s):
                self._heard_of(ago_s, now)
                return []
            case SnapshotWritten(settings):
                return self._present(settings, now)
            case (
                NetworkChanged() | TransfersPlanned() | MasterStoodStill() | WorkerForgotten() | JobsForgotten()
                | WakeRequested()
            ):  # fmt: skip
                return []  # what-if has no transfers, no paused master, no departed workers and no sleeping computers
        return [event]

    def _present(self, settings: SchedulerSettings, now: float) -> list[FromOutside]:
        """Return what brings those into the grid who were there as the log began, in the midst of a master's life."""
        recording = self._recording
        if recording.moments or self._sessions:
            return []  # the log began before
        recording.settings, items = settings, list[FromOutside]([MasterStarted(settings)])
        allowed = recording.scheduler.state.own(CountedUnits).allowed
        items += [LimitChanged(name, *limit) for name, limits in allowed.items() for limit in limits.items()]
        for worker in recording.scheduler.state.workers.values():
            if worker.session is not None:
                items += self._outside(WorkerJoined(worker.name, worker.session, worker.boot, worker.facts), now)
                if worker.load is not None:
                    load = _of_weight(worker.load)
                    recording.loads[worker.name], self._kept[worker.name] = [(now, load)], (now, load)
                    items.append(Reported(worker.name, load))
        return items

    def _reported(self, worker: str, session: int, report: Report, now: float) -> list[FromOutside]:
        """Return the report if it must be repeated. A report with results follows by itself, unless slots change.

        One without results is repeated if it changed an attempt: it began to run, or led to a decision.
        """
        if self._sessions.get(worker, (None,))[0] != session:
            return []
        load = _of_weight(report.load)
        self._bridge(worker, now)
        past = self._recording.loads.setdefault(worker, [])
        if not past or past[-1][1] != load:
            past.append((now, load))
        kept_at, kept = self._kept.get(worker, (now, None))
        if now - kept_at > self._recording.settings.lease_s / 2:
            self._keep_last(worker)
        is_known = kept is not None and (load == kept or (report.results and load.slots == kept.slots))
        if is_known and (report.results or not self._has_changed):
            self._heard[worker] = now
            return []
        self._kept[worker] = (now, load)
        self._heard.pop(worker, None)
        return [Reported(worker, load)]

    def _heard_of(self, ago_s: Mapping[str, float], now: float) -> None:
        for worker in ago_s.keys() & self._kept.keys():
            self._bridge(worker, now - ago_s[worker])
            self._heard[worker] = now - ago_s[worker]

    def _bridge_all(self, until: float) -> None:
        for worker in self._sessions:
            self._bridge(worker, until)

    def _bridge(self, worker: str, until: float) -> None:
        """Keep reports that renew the lease of an open session until then: those without news were kept back.

        Had it fallen silent, the log would say so.
        """
        lease_s, (at, load) = self._recording.settings.lease_s, self._kept.get(worker, (until, None))
        at = max(at, self._heard.get(worker, at))
        while load is not None and until - at > lease_s:
            at += lease_s / 2
            self._heard[worker] = at
            self._keep_last(worker)

    def _keep_last(self, worker: str) -> None:
        """Keep the last report of a session, which decides when its lease ends."""
        at = self._heard.pop(worker, None)
        if at is not None:
            load = self._kept[worker][1]
            self._kept[worker] = (at, load)
            self._recording.moments.append(Moment(at, [Reported(worker, load)]))

    def _close(self, effects: Effects, batch: Batch) -> None:
        """Record silences: a worker whose lease ran out fell silent after its last report."""
        joined = {event.worker for event in batch.events if isinstance(event, WorkerJoined)}
        for worker, session in effects.closes:
            if worker not in joined and self._sessions.get(worker, (None,))[0] == session:
                since = self._heard.get(worker) or self._kept.get(worker, self._sessions[worker][::-1])[0]
                self._keep_last(worker)
                every = min(self._recording.settings.report_every_s, self._recording.settings.lease_s)
                self._recording.moments.append(Moment(since + every / 2, [FellSilent(worker)]))
                del self._sessions[worker]

    def _spans(self, event: WorkerReported, now: float) -> list[Span]:
        return [self._span(event, result, now) for result in event.report.results]

    def _span(self, event: WorkerReported, result: Result, now: float) -> Span:
        """Return the time that the attempt occupied its slot, as the master saw it.

        If it was sent to a free slot, it occupied it from then on, including the time of the messages, if the link
        was open all the time. If it waited at its worker, it took over the slot of the attempt that ended before it.
        """
        state = self._recording.scheduler.state
        attempt, worker = state.attempts.get(result.attempt), state.workers.get(event.worker)
        if worker is not None:
            since = worker.joined_at if attempt is None else attempt.dispatched_at
            result = figures.cut(result, worker.facts, now + self._recording.began - since + figures.ROUNDING_S)
        began = now - result.wall_s
        has_waited = attempt is not None and (attempt.state in UNSEATED or attempt.waited_s > 0)
        freed = self._freed[event.worker]
        sent = began if attempt is None else attempt.dispatched_at - self._recording.began
        start = _nearest(freed, self._began(attempt) or began) if has_waited else sent
        took = now - start
        is_whole = self._boots.get(event.worker, ("", now))[1] <= sent  # otherwise it was sent again
        is_linked = is_whole and self._sessions.get(event.worker, (0, now))[1] <= sent
        if not is_linked or (result.outcome is Outcome.CANCELLED and not result.wall_s):
            start, took = (start if is_whole else began), result.wall_s
        if result.wall_s or (attempt is not None and attempt.is_seated):
            _strike_out(freed, start)
            freed.append(now)
            del freed[:-_MOST_FREED]
        return Span(
            result.attempt.task_id,
            event.worker,
            start,
            took,
            result.outcome,
            wall_s=result.wall_s,
            cpu_s=result.cpu_s,
        )

    def _began(self, attempt: Attempt | None) -> float | None:
        """Return when the attempt began by the first report that said so: it came with the end of the one before."""
        if attempt is None or attempt.started_at is None:
            return None
        return attempt.started_at - self._recording.began


def _of_weight(load: Load) -> Load:
    """Return the part of a load that influences decisions."""
    return Load(load.slots, load.spare_cpu, withheld=load.withheld, delay_s=load.delay_s)


def _nearest(freed: list[float], began: float) -> float:
    """Return when the slot fell free that an attempt took that began at about that time; that time if none did."""
    found = min(freed, key=lambda at: abs(at - began), default=began)
    return found if abs(found - began) <= AT_ONCE_S else began


def _strike_out(freed: list[float], start: float) -> None:
    """Strike out the slot that was taken: the last that had fallen free by then."""
    before = [at for at in freed if at <= start]
    if before:
        freed.remove(before[-1])


def _keep_machines(recording: Recording) -> None:
    """Keep the machines that went when all was done: had there been more to do, they would have stayed.

    An agent that is being stopped offers no slots in its last reports, so the slots offered before are kept too.
    """
    done = max(job.finished_at or 0.0 for job in recording.tally.jobs.values()) - recording.began
    going = _stopping(recording)
    for moment in reversed(recording.moments):
        if moment.at < done:
            break
        moment.items[:] = [item for item in reversed(moment.items) if not _goes(item, going)][::-1]


def _stopping(recording: Recording) -> set[str]:
    """Return the workers that stop as the log ends: they offer zero slots although their owners withhold none."""
    loads = {worker.name: worker.load for worker in recording.scheduler.state.workers.values()}
    return {name for name, load in loads.items() if load is not None and not load.slots and not load.withheld}


def _goes(item: FromOutside, going: set[str]) -> bool:
    """True if the item is part of a machine's departure; ``going``: machines that leave after it."""
    match item:
        case MasterStarted():
            return True
        case WorkerLeft(worker) | FellSilent(worker):
            going.add(worker)
            return True
        case Reported(worker, load):
            if load.slots:
                going.discard(worker)
            return worker in going
        case WorkerJoined(worker):
            going.discard(worker)
    return False


def rebased(settings: SchedulerSettings, policy: str | None, order: str | None) -> SchedulerSettings:
    """Return the recorded settings with another policy or order."""
    chosen = replace(settings, policy=policy or settings.policy)
    return replace(chosen, order=Order(order)) if order else chosen
