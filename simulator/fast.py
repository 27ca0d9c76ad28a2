"""The fast world: the live scheduler and computers whose speed fluctuates; links, spools and disks left out.

For tables of many runs. Frames arrive at once and are never lost; whatever else a master meets, the full world
has (simulator/full).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from master.scheduling.effects import Effects
from master.scheduling.events import Event, JobSubmitted, MasterStarted, SchedulerSettings, WorkerJoined, WorkerReported
from master.scheduling.scheduler import Scheduler
from shared.model import AttemptId, Facts, Held, Load, Outcome, Result
from shared.protocol.messages import Assign, Report
from shared.spec import JobSpec
from shared.sweep import size_at
from simulator.hosts import Speed
from simulator.kernel import Appointment, Kernel


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and when it is submitted."""

    at: float
    spec: JobSpec


@dataclass(slots=True)
class Host:
    """One computer: a worker that does what it is told, as fast as its speed allows."""

    name: str
    facts: Facts
    speed: Speed
    seq: int = 0
    seen: int = 0
    running: dict[AttemptId, tuple[float, Appointment]] = field(default_factory=dict)  # since when, until its end


class FastWorld:
    """``run`` submits the jobs as they arrive, and goes on until all have ended."""

    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        observe: Callable[[Effects], None] = lambda effects: None,
    ) -> None:
        """``observe`` is shown the effects of each step; their entities are the scheduler's own."""
        self.kernel = Kernel()
        self.scheduler = Scheduler()
        self._observe = observe
        self._hosts = {host.name: host for host in hosts}
        self._step([MasterStarted(settings)])
        self._step([WorkerJoined(host.name, 1, "boot", host.facts) for host in hosts])
        self._step([self._report(host) for host in hosts])
        for arrival in arrivals:
            self.kernel.at(arrival.at, lambda spec=arrival.spec: self._step([JobSubmitted("user", spec)]))

    def run(self) -> None:
        self.kernel.run()

    def _step(self, events: list[Event]) -> Effects:
        effects = self.scheduler.step(events, self.kernel.now)
        self._observe(effects)
        follow_ups = [report for name, assign in effects.assigns.items() for report in self._obey(name, assign)]
        if follow_ups:
            self._step(follow_ups)
        return effects

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        host = self._hosts[name]
        host.seen = assign.seq
        for run in assign.run:
            self._start(host, run.attempt)
        cancelled = []
        for attempt in assign.cancel:
            since, end = host.running.pop(attempt)
            end.cancel()
            cancelled.append(Result(attempt, Outcome.CANCELLED, wall_s=self.kernel.now - since))
        return [self._report(host, cancelled)] if cancelled else []

    def _start(self, host: Host, attempt: AttemptId) -> None:
        size = size_at(self.scheduler.state.jobs[attempt.job].spec, attempt.task) or 0.0
        end = host.speed.end_of(self.kernel.now, size)
        host.running[attempt] = (self.kernel.now, self.kernel.at(end, lambda: self._end(host, attempt)))

    def _end(self, host: Host, attempt: AttemptId) -> None:
        since, _ = host.running.pop(attempt)
        result = Result(attempt, Outcome.SUCCEEDED, 0, wall_s=self.kernel.now - since)
        self._step([self._report(host, [result])])

    def _report(self, host: Host, results: Sequence[Result] = ()) -> WorkerReported:
        host.seq += 1
        holding = tuple(Held(attempt, self.kernel.now - since) for attempt, (since, _) in host.running.items())
        return WorkerReported(host.name, 1, Report(host.seq, host.seen, holding, tuple(results), Load(host.facts.slots)))
