"""The fast world with slow links, machines that queue attempts, and occasional reports of their load."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from loopline_master.core.events import Event, JobSubmitted, SchedulerSettings, WorkerReported
from loopline_master.core.kernel.effects import Effects
from loopline_shared.model import AttemptId, Held, Load, Outcome, Result
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.worker_link import Assign, Report
from loopline_simulator.dynamic_load.scenario import Information, ProgramRun, SizeKnowledge
from loopline_simulator.fast.world import FastWorld, Host
from loopline_simulator.kernel import Appointment

MEASURED_OVER_S = 10.0
"""Spare CPU is measured over this many seconds; periodic reports have the same period."""


@dataclass(slots=True)
class _MachineQueue:
    """Attempts that one machine has in hand beside the running ones."""

    delay_s: float
    queue: deque[AttemptId] = field(default_factory=deque)
    arrives_at: dict[AttemptId, float] = field(default_factory=dict)  # of runs that are on their way
    ended: dict[AttemptId, float] = field(
        default_factory=dict
    )  # run times of attempts whose results are on their way
    alarm: Appointment | None = None  # for the arrival of the first in the queue


class DynamicWorld(FastWorld):
    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        delays_s: Mapping[str, float],
        *,
        runs: Sequence[ProgramRun],
        sizes: SizeKnowledge,
        information: Information,
        observe: Callable[[Effects], None] = lambda effects: None,
    ) -> None:
        self._queues = {name: _MachineQueue(delay_s) for name, delay_s in delays_s.items()}
        self._work: dict[int, float] = {}  # true work by job, unknown to the scheduler
        self._information = information
        super().__init__(settings, hosts, (), observe)
        self._to_come = len(runs)
        for run in runs:
            self.kernel.at(run.at, partial(self._arrive, run, sizes))
        if information is Information.PERIODIC:
            self.kernel.at(MEASURED_OVER_S, self._report_all)

    def _arrive(self, run: ProgramRun, sizes: SizeKnowledge) -> None:
        self._to_come -= 1
        self._work[self.scheduler.state.grid.next_job] = run.work
        self._step([JobSubmitted(run.user, run.spec(sizes))])

    def _step(self, events: list[Event]) -> Effects:
        if self._information is Information.ORACLE and any(isinstance(event, JobSubmitted) for event in events):
            super()._step([self._report(host) for host in self._hosts.values()])
        return super()._step(events)

    def _report_all(self) -> None:
        super()._step([self._report(host) for host in self._hosts.values()])
        if self._to_come or self.scheduler.state.jobs:
            self.kernel.at(self.kernel.now + MEASURED_OVER_S, self._report_all)

    # --- what a machine does --------------------------------------------------------------------------------

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        """Carry out an Assign: runs travel for a while; cancels arrive at once, since they are rare here."""
        host, queued = self._hosts[name], self._queues[name]
        host.seen = assign.seq
        cancelled = [result for attempt in assign.cancel if (result := self._cancel(host, queued, attempt))]
        for run in assign.run:
            queued.queue.append(run.attempt)
            queued.arrives_at[run.attempt] = self.kernel.now + queued.delay_s
        self._go_on(host, queued)
        return [self._report(host, cancelled)] if cancelled else []

    def _cancel(self, host: Host, queued: _MachineQueue, attempt: AttemptId) -> Result | None:
        if attempt in host.running:
            since, end = host.running.pop(attempt)
            end.cancel()
            return Result(attempt, Outcome.CANCELLED, wall_s=self.kernel.now - since)
        if attempt in queued.arrives_at:
            queued.queue.remove(attempt)
            del queued.arrives_at[attempt]
            return Result(attempt, Outcome.CANCELLED)
        return None  # its result is on its way

    def _go_on(self, host: Host, queued: _MachineQueue) -> None:
        """Start queued attempts in the order of their arrival, as long as a slot is free."""
        while queued.queue and len(host.running) < host.facts.slots:
            due = queued.arrives_at[queued.queue[0]]
            if due > self.kernel.now:
                if queued.alarm:
                    queued.alarm.cancel()
                queued.alarm = self.kernel.at(due, partial(self._go_on, host, queued))
                return
            attempt = queued.queue.popleft()
            del queued.arrives_at[attempt]
            self._start(host, attempt)

    def _end_of(self, host: Host, attempt: AttemptId) -> float:
        return host.speed.end_of(self.kernel.now, self._work[attempt.job])

    def _end(self, host: Host, attempt: AttemptId) -> None:
        queued, (since, _) = self._queues[host.name], host.running.pop(attempt)
        queued.ended[attempt] = self.kernel.now - since
        self.kernel.at(self.kernel.now + queued.delay_s, partial(self._deliver, host, attempt))
        self._go_on(host, queued)

    def _deliver(self, host: Host, attempt: AttemptId) -> None:
        wall_s = self._queues[host.name].ended.pop(attempt)
        cpu_s = min(wall_s, self._work[attempt.job] / host.facts.speed)
        self._brought(host, Result(attempt, Outcome.SUCCEEDED, 0, wall_s=wall_s, cpu_s=cpu_s))

    def _report(self, host: Host, results: Sequence[Result] = ()) -> WorkerReported:
        host.seq += 1
        queued, now = self._queues[host.name], self.kernel.now
        holding = [Held(attempt, now - since) for attempt, (since, _) in host.running.items()]
        holding += [Held(attempt, wall_s) for attempt, wall_s in queued.ended.items()]
        load = Load(host.facts.slots, spare_cpu=self._spare(host), delay_s=2 * queued.delay_s)
        report = Report(host.seq, host.seen, tuple(holding), tuple(results), load, waiting=ranges_of(queued.queue))
        return WorkerReported(host.name, host.session, report)

    def _spare(self, host: Host) -> float:
        """Return the cores that the owner has not used lately."""
        now = self.kernel.now
        over_s = min(now, MEASURED_OVER_S)
        if over_s <= 0:
            return 1.0
        return min(1.0, host.speed.work_between(now - over_s, now) / (over_s * host.facts.speed))
