"""A recording replayed with other decisions."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TypeGuard

from loopline_master.core.events import (
    Event,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerLeft,
)
from loopline_master.core.kernel.effects import Effects, Submitted
from loopline_master.core.kernel.entities import Job, Task
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_shared.model import AttemptId, JobState, Load, Outcome, Result, TaskId, TaskState
from loopline_shared.protocol.worker_link import Assign
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Host
from loopline_simulator.whatif.durations import Durations, Fate
from loopline_simulator.whatif.recording import (
    AT_ONCE_S,
    FellSilent,
    FromOutside,
    Moment,
    Recording,
    Reported,
    Steering,
    rebased,
)

_UNSUCCESSFUL = (TaskState.FAILED, TaskState.CANCELLED)


class WhatIfWorld(ChangingWorld):
    """A recording replayed; ``jobs_as`` maps recorded job numbers to those here.

    They differ only where one of both had no room for a job.
    """

    def __init__(
        self,
        recording: Recording,
        observe: Callable[[Effects], None],
        *,
        policy: str | None = None,
        order: str | None = None,
    ) -> None:
        self._policy, self._order = policy, order
        self._moments, self._loads, self._durations = recording.moments, recording.loads, Durations(recording)
        self._ended, self._assigns = recording.ended, recording.assigns
        self._apart = recording.apart
        self._since: dict[AttemptId, float] = {}  # attempts of the Assign that is being carried out
        self._arrives_at: dict[str, float] = {}  # the last frame to a worker
        self._freed_at: dict[str, float] = {}  # when a slot of the worker fell free
        self._failures: dict[TaskId, int] = {}
        self._submitted = 0  # of the recording's jobs
        self.jobs_as: dict[int, int] = {}  # number in the recording: number here
        self._recorded_as: dict[int, int] = {}  # the reverse
        self._to_retry = Retriable(item.job.id for moment in self._moments for item in moment.items if _retries(item))
        self._boots: dict[str, str] = {}
        self._ends: dict[int, JobState] = {}  # of jobs, by their numbers here
        self._due: list[tuple[Event, FromOutside | None]] = []  # events of this moment, for one step
        self._playing: list[FromOutside | None] = []
        self._show = observe
        super().__init__(recording.settings, [], [], self._note)

    @property
    def is_over(self) -> bool:
        return not self._changes and super().is_over

    def _begin(self, settings: SchedulerSettings) -> None:
        for moment in self._moments:
            self._expect(moment.at, partial(self._play, moment))
        if math.isfinite(settings.lease_s):
            self.kernel.at(self._ended, self._renew)

    # --- what came from outside -----------------------------------------------------------------------------

    def _play(self, moment: Moment) -> None:
        """Repeat a recorded moment."""
        self._post([(event, item) for item in moment.items if (event := self._event(item)) is not None])

    def _post(self, events: list[tuple[Event, FromOutside | None]]) -> None:
        """Have the events stepped together with all else that happens now, where the recording stepped once."""
        if events and not self._due:
            self.kernel.at(self.kernel.now, self._catch_up)
        self._due += events
        if self.kernel.now in self._apart:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._due:
            self._step([])

    def _step(self, events: list[Event]) -> Effects:
        due, self._due = self._due, []
        self._playing = [item for _, item in due]
        return super()._step([*(event for event, _ in due), *events])

    def _note(self, effects: Effects) -> None:
        """Take note of a step's effects before anything follows from them."""
        for item, reply in zip(self._playing, effects.replies, strict=False):
            if isinstance(item, JobSubmitted):
                self._submitted += 1
                if isinstance(reply, Submitted):
                    self.jobs_as[self._submitted], self._recorded_as[reply.job] = reply.job, self._submitted
        self._playing = []
        self._ends.update((job.id, job.state) for job in effects.jobs.values() if job.is_over)
        for recorded in self._to_retry.note(effects, self._recorded_as):
            self.kernel.at(self.kernel.now, partial(self._retry, recorded))
        self._show(effects)

    def _retry(self, recorded: int) -> None:
        event = self._retried(recorded)
        if event is not None:
            self._step([event])

    def _retried(self, recorded: int) -> Event | None:
        """Return the retry of a job; None if it has not failed here yet, in which case the retry follows later."""
        event = self._to_retry.event(recorded)
        if event is None or not event.job.spec.after:
            return event
        return replace(event, ended={job: self._ends.get(job, JobState.CANCELLED) for job in event.job.spec.after})

    def _event(self, item: FromOutside) -> Event | None:
        match item:
            case MasterStarted(settings):
                self._online.clear()
                return MasterStarted(rebased(settings, self._policy, self._order))
            case WorkerJoined():
                return self._join(item)
            case FellSilent(worker):
                self._online.discard(worker)
                return None
            case WorkerLeft(worker):
                self._online.discard(worker)
            case Reported(worker, load):
                return self._report_again(self._hosts[worker], load.slots)
            case JobSubmitted() if item.spec.after:
                return self._chained(item)
            case JobCancelled() | JobPaused() | JobResumed() | JobRetried():
                return self._steer(item)
        return item

    def _join(self, event: WorkerJoined) -> Event:
        host = self._hosts.setdefault(event.worker, Host(event.worker, event.facts, Steady(1.0)))
        if self._boots.get(host.name) != event.boot:
            self.lose(host)  # the agent restarted: assume that the machine was off until then
            host.unsent.clear()
        self._boots[host.name] = event.boot
        self._online.add(host.name)
        host.facts, host.session, host.seq, host.seen = event.facts, event.session, 0, 0
        return event

    def _report_again(self, host: Host, slots: int) -> Event | None:
        host.offered = slots
        return self._news(host) if host.name in self._online else None

    def _steer(self, event: Steering) -> Event | None:
        if isinstance(event, JobRetried):
            return self._retried(event.job.id)
        job = self.jobs_as.get(event.job)
        return None if job is None else replace(event, job=job)

    def _chained(self, event: JobSubmitted) -> Event:
        """Return the submission with its dependencies renumbered, and their ends as they were here."""
        after = [self.jobs_as.get(job, job) for job in event.spec.after]
        ended = {job: self._ends.get(job, JobState.CANCELLED) for job in after}  # an unknown job was refused here
        return replace(event, spec=event.spec.model_copy(update={"after": after}), ended=ended)

    # --- what follows ---------------------------------------------------------------------------------------

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        """Post the reports of an Assign's execution at their times; a frame to a disconnected machine is lost."""
        if name not in self._online:
            return []
        host, at = self._hosts[name], self.kernel.now + self._round_trip_s(name, assign)
        if not assign.cancel:  # a cancel takes mostly the end of its attempt; frames keep their order
            at = self._arrives_at[name] = max(at, self._arrives_at.get(name, at))
        if at == self.kernel.now:
            return super()._obey(name, assign)
        self.kernel.at(at, partial(self._arrive, host, host.session, assign, self.kernel.now))
        return []

    def _arrive(self, host: Host, session: int, assign: Assign, sent_at: float) -> None:
        """Carry out an Assign that was sent a round trip ago: from now on reports show what came of it."""
        if host.session == session and host.name in self._online:
            self._since = {run.attempt: self._begins(host, run.attempt, sent_at) for run in assign.run}
            reports = super()._obey(host.name, assign)
            self._since = {}
            self._post([(report, None) for report in reports])

    def _begins(self, host: Host, attempt: AttemptId, sent_at: float) -> float:
        """Return when an attempt occupies its slot if it begins as its Assign arrives.

        As in the recording, an attempt that was sent to wait takes over the slot that has become free since then.
        """
        found = self.scheduler.state.attempts.get(attempt)
        if found is None or found.is_seated:
            return sent_at
        freed_at = max(sent_at, self._freed_at.get(host.name, sent_at))
        return freed_at if self.kernel.now - freed_at <= AT_ONCE_S else self.kernel.now

    def _leave(self, host: Host, attempt: AttemptId) -> float:
        self._freed_at[host.name] = self.kernel.now
        return super()._leave(host, attempt)

    def _drop(self, host: Host, attempt: AttemptId) -> Result:
        if attempt in host.running:
            self._freed_at[host.name] = self.kernel.now
        return super()._drop(host, attempt)

    def _round_trip_s(self, worker: str, assign: Assign) -> float:
        tasks = [TaskId(self._recorded_as[attempt.job], attempt.task) for attempt in assign.cancel]
        return self._assigns.took_s(worker, tasks, self.kernel.now)

    def _brought(self, host: Host, result: Result) -> None:
        if host.name in self._online:
            self._post([(self._report(host, [result]), None)])
        else:
            host.unsent.append(result)

    def _start(self, host: Host, attempt: AttemptId) -> None:
        task = TaskId(self._recorded_as[attempt.job], attempt.task)
        failures = self._failures.get(task, 0)
        since = self._since.get(attempt, self.kernel.now)
        fate = self._durations.plan(task, host.name, since, failures)
        self._failures[task] = failures + (fate.outcome is Outcome.FAILED)
        self._until(host, attempt, max(fate.end, self.kernel.now), partial(self._finish, host, attempt, fate))
        began, end = host.running[attempt]
        host.running[attempt] = min(began, max(since, fate.end - fate.wall_s)), end

    def _finish(self, host: Host, attempt: AttemptId, fate: Fate) -> None:
        self._leave(host, attempt)
        code, wall_s, cpu_s = int(fate.outcome is Outcome.FAILED), fate.wall_s, fate.cpu_s
        self._brought(host, Result(attempt, fate.outcome, code, wall_s=wall_s, cpu_s=cpu_s))

    def _load(self, host: Host) -> Load:
        """Return the load that the worker reported at this time, or first of all."""
        past = self._loads[host.name]
        at = bisect_right(past, self.kernel.now, key=itemgetter(0))
        return replace(past[max(0, at - 1)][1], slots=host.facts.slots if host.offered is None else host.offered)


def _retries(item: FromOutside) -> TypeGuard[JobRetried]:
    return isinstance(item, JobRetried)


class Retriable:
    """Rows of jobs that will be retried, as they are in the replay. Jobs go by their numbers in the recording."""

    def __init__(self, recorded: Iterable[int]) -> None:
        self._jobs: dict[int, Job | None] = dict.fromkeys(recorded)
        self._tasks: dict[int, dict[int, Task]] = {job: {} for job in self._jobs}
        self._overdue: set[int] = set()

    def note(self, effects: Effects, recorded_as: Mapping[int, int]) -> list[int]:
        """Return the jobs that have ended now and whose retry is overdue."""
        if not self._jobs:
            return []
        for job in effects.jobs.values():
            if (recorded := recorded_as.get(job.id)) in self._jobs:
                self._jobs[recorded] = job
        for task in effects.tasks.values():
            if (recorded := recorded_as.get(task.job)) in self._jobs:
                self._tasks[recorded][task.number] = task
        return [job for job in sorted(self._overdue) if self._is_retriable(job)]

    def event(self, recorded: int) -> JobRetried | None:
        """Return the job's retry; None if it must wait or there is nothing to do."""
        self._overdue.discard(recorded)
        job = self._jobs[recorded]
        if job is None or not self._is_retriable(recorded):
            self._overdue.add(recorded)
            return None
        tasks = self._tasks[recorded].values()
        succeeded = IntervalSet.of(task.number for task in tasks if task.state is TaskState.SUCCEEDED)
        return JobRetried(job, [task for task in tasks if task.state in _UNSUCCESSFUL], succeeded.pairs())

    def _is_retriable(self, recorded: int) -> bool:
        job = self._jobs[recorded]
        return job is not None and job.state in (JobState.FAILED, JobState.CANCELLED)
