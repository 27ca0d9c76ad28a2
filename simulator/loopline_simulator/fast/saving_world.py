"""The fast world with checkpoints: a lost task continues from the newest one at the master.

When a checkpoint is due is decided by the worker's own code (``CheckpointIntervals``), and which one a new attempt
continues from by the scheduler. Each checkpoint stops its task for ``Saving.cost_s``. An upload takes
``Saving.upload_s``, while the task computes. A machine that lost its attempts has lost its own copies as well.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from loopline_master.core.events import Event, SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.model import AttemptId, Result, TaskId
from loopline_shared.protocol.checkpoints import CheckpointOrder, CheckpointReport, Resumption, TakenCheckpoint
from loopline_shared.protocol.worker_link import Assign
from loopline_shared.sweep import size_at
from loopline_simulator.fast.availability import Absence, Interval
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.metrics import Measures, Spent
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.kernel import Appointment
from loopline_worker.checkpoints.interval import CheckpointIntervals


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints that all tasks of a run take."""

    every_s: float | None = None  # time between two; None: the worker's rule; 0: they take none
    cost_s: float = 1.0  # pause of the task for each
    size_bytes: float = 1e8
    bytes_s: float = 1.25e7  # rate of uploads; the default is 100 Mbit/s

    @property
    def upload_s(self) -> float:
        """Time from the beginning of an upload until the master has the checkpoint."""
        return self.size_bytes / self.bytes_s

    def of(self, arrival: Arrival) -> Arrival:
        """Return the job with these checkpoints."""
        if self.every_s == 0:
            return arrival
        return replace(
            arrival, spec=arrival.spec.model_copy(update={"checkpoint": CheckpointSpec(every_s=self.every_s)})
        )


@dataclass(frozen=True, slots=True)
class _LocalCheckpoint:
    work: float  # of the task until then, in reference CPU-seconds
    worked_s: float  # of this attempt


@dataclass(slots=True)
class _Ongoing:
    """An attempt under way. Its task computes from ``counted_at`` on; until then, ``work`` is done."""

    host: Host
    attempt: AttemptId
    resume: Resumption | None
    since: float
    counted_at: float
    work: float  # of the task, also by earlier attempts
    intervals: CheckpointIntervals | None  # None: it takes no checkpoints
    worked_s: float = 0.0  # by this attempt, without the time of checkpoints
    newest: _LocalCheckpoint | None = None
    sent: _LocalCheckpoint | None = None
    upload: Appointment | None = None
    is_uploading: bool = False

    def count(self, now: float) -> None:
        """Count what the task has computed until now."""
        if now > self.counted_at:
            self.work += self.host.speed.work_between(self.counted_at, now)
            self.worked_s += now - self.counted_at
            self.counted_at = now


class SavingWorld(ChangingWorld):
    """A changing world whose tasks may take checkpoints. Its lost work is all work that no result contains."""

    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        observe: Callable[[Effects], None] = lambda effects: None,
        *,
        saving: Saving,
        stays: Mapping[str, Iterable[Interval]] | None = None,
        absence: Absence = Absence.LOSES,
        last_lease_s: float | None = None,
    ) -> None:
        self._saving = saving
        self._orders: dict[AttemptId, CheckpointOrder | None] = {}  # of attempts to be started
        self._ongoing: dict[AttemptId, _Ongoing] = {}
        self._contents: dict[str, float] = {}  # work in each checkpoint, by manifest
        self._spent = Spent()
        self._useful: dict[TaskId, Spent] = {}
        jobs = map(saving.of, arrivals)
        super().__init__(settings, hosts, jobs, observe, stays=stays, absence=absence, last_lease_s=last_lease_s)

    def corrected(self, measures: Measures) -> Measures:
        """Return the measures with this world's shares of lost time and work."""
        time, work = (sum(getattr(one, part) for one in self._useful.values()) for part in ("time", "work"))
        return replace(measures, lost_time=1 - time / self._spent.time, lost_work=1 - work / self._spent.work)

    # --- attempts -------------------------------------------------------------------------------------------

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        self._orders |= {run.attempt: run.checkpoint for run in assign.run}
        return super()._obey(name, assign)

    def _start(self, host: Host, attempt: AttemptId) -> None:
        order, now = self._orders.pop(attempt), self.kernel.now
        resume = order.resume if order else None
        self._ongoing[attempt] = ongoing = _Ongoing(
            host,
            attempt,
            resume,
            since=now,
            counted_at=now,
            work=self._contents[resume.manifest] if resume else 0.0,
            intervals=CheckpointIntervals(order, now) if order else None,
        )
        self._continue(ongoing)

    def _continue(self, ongoing: _Ongoing) -> None:
        """Wait for the attempt's end or its next checkpoint, whichever comes first."""
        host, attempt, start = ongoing.host, ongoing.attempt, ongoing.counted_at
        end = host.speed.end_of(start, self._work_of(attempt) - ongoing.work)
        due = max(ongoing.intervals.due_at, start) if ongoing.intervals else math.inf
        if end == math.inf and due < math.inf and not host.speed.work_between(start, due):
            due = math.inf  # its host sleeps, perhaps for ever
        is_due = due < end
        call = partial(self._save, ongoing) if is_due else partial(self._end, host, attempt)
        self._until(host, attempt, due if is_due else end, call)
        host.running[attempt] = (ongoing.since, host.running[attempt][1])

    def _work_of(self, attempt: AttemptId) -> float:
        size = size_at(self.scheduler.state.jobs[attempt.job].spec, attempt.task) or 0.0
        return size * self._scales.get(attempt.job, 1.0)

    def _leave(self, host: Host, attempt: AttemptId) -> float:
        ongoing = self._count_out(attempt)
        earlier_s = ongoing.resume.wall_s if ongoing.resume else 0.0
        self._useful.setdefault(attempt.task_id, Spent(earlier_s + ongoing.worked_s, ongoing.work))
        return super()._leave(host, attempt)

    def _drop(self, host: Host, attempt: AttemptId) -> Result:
        self._orders.pop(attempt, None)
        if attempt in host.running:
            self._count_out(attempt)
        return super()._drop(host, attempt)

    def lose(self, host: Host) -> None:
        for attempt in host.running:
            self._count_out(attempt)
        super().lose(host)

    def _count_out(self, attempt: AttemptId) -> _Ongoing:
        ongoing = self._ongoing.pop(attempt)
        ongoing.count(self.kernel.now)
        self._spent.add(
            self.kernel.now - ongoing.since, ongoing.host.speed.work_between(ongoing.since, self.kernel.now)
        )
        if ongoing.upload:
            ongoing.upload.cancel()
        return ongoing

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _save(self, ongoing: _Ongoing) -> None:
        """Take a checkpoint: the task computes again when it is done."""
        assert ongoing.intervals
        now = self.kernel.now
        ongoing.count(now)
        ongoing.newest = _LocalCheckpoint(ongoing.work, ongoing.worked_s)
        ongoing.counted_at = now + self._saving.cost_s
        ongoing.intervals.taken(now, self._saving.cost_s)
        self._plan_upload(ongoing)
        self._continue(ongoing)

    def _plan_upload(self, ongoing: _Ongoing) -> None:
        assert ongoing.intervals
        if ongoing.is_uploading or ongoing.newest is ongoing.sent:
            return
        if ongoing.upload:
            ongoing.upload.cancel()
        due = max(ongoing.intervals.upload_at(self.kernel.now), ongoing.counted_at)
        ongoing.upload = self.kernel.at(due, partial(self._begin_upload, ongoing))

    def _begin_upload(self, ongoing: _Ongoing) -> None:
        assert ongoing.newest
        ongoing.is_uploading = True
        began, done = self.kernel.now, self.kernel.now + self._saving.upload_s
        ongoing.upload = self.kernel.at(done, partial(self._end_upload, ongoing, ongoing.newest, began))

    def _end_upload(self, ongoing: _Ongoing, checkpoint: _LocalCheckpoint, began: float) -> None:
        assert ongoing.intervals
        ongoing.upload, ongoing.is_uploading, now = None, False, self.kernel.now
        if ongoing.host.name not in self._online:  # the next checkpoint plans another
            ongoing.intervals.not_uploaded(now)
            return
        ongoing.sent = checkpoint
        ongoing.intervals.uploaded(began, now - began)
        self._report_taken(ongoing, checkpoint)
        if ongoing.attempt in self._ongoing:
            self._plan_upload(ongoing)

    def _report_taken(self, ongoing: _Ongoing, checkpoint: _LocalCheckpoint) -> None:
        resume, size_bytes = ongoing.resume, round(self._saving.size_bytes)
        manifest = hashlib.sha256(repr((ongoing.attempt, len(self._contents))).encode()).hexdigest()
        self._contents[manifest] = checkpoint.work
        time_s = checkpoint.worked_s + (resume.wall_s if resume else 0.0)
        line = tuple(dict.fromkeys((*(resume.line if resume else ()), ongoing.host.name)))
        taken = TakenCheckpoint(
            ongoing.attempt,
            manifest,
            size_bytes=size_bytes,
            sent_bytes=size_bytes,
            cpu_s=time_s,
            wall_s=time_s,
            line=line,
            times=resume.times if resume else 0,
        )
        event = self._report(ongoing.host)
        report = replace(event.report, checkpoints=CheckpointReport((taken,)))
        self._step([replace(event, report=report)])
