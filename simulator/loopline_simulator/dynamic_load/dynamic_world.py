"""The fast world with links that take time, machines at which attempts wait, and load that the master hears of now
and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from loopline_master.core.effects import Effects
from loopline_master.core.events import Event, JobSubmitted, SchedulerSettings, WorkerReported
from loopline_shared.model import AttemptId, Held, Load, Outcome, Result
from loopline_shared.protocol.attempt_ranges import stretches
from loopline_shared.protocol.messages import Assign, Report
from loopline_simulator.dynamic_load.scenario import Information, ProgramRun, SizeKnowledge
from loopline_simulator.fast.world import FastWorld, Host
from loopline_simulator.kernel import Appointment

MEASURED_OVER_S = 10.0
"""Spare CPU is what was left over in so many seconds before; the period of periodic reports, too."""


@dataclass(slots=True)
class _Desk:
    """What one machine has in hand beyond what runs."""

    delay_s: float
    queue: deque[AttemptId] = field(default_factory=deque)
    arrives_at: dict[AttemptId, float] = field(default_factory=dict)  # of runs that are on their way
    ended: dict[AttemptId, float] = field(default_factory=dict)  # so long did run whose result is on its way
    alarm: Appointment | None = None  # for the arrival of the first in the queue


class DynamicWorld(FastWorld):
    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        delays_s: Mapping[str, float],
        runs: Sequence[ProgramRun],
        sizes: SizeKnowledge,
        information: Information,
        observe: Callable[[Effects], None] = lambda effects: None,
    ) -> None:
        self._desks = {name: _Desk(delay_s) for name, delay_s in delays_s.items()}
        self._work: dict[int, float] = {}  # by job: what nobody tells the scheduler
        self._information = information
        super().__init__(settings, hosts, (), observe)
        self._to_come = len(runs)
        for run in runs:
            self.kernel.at(run.at, partial(self._arrive, run, sizes))
        if information is Information.PERIODIC:
            self.kernel.at(MEASURED_OVER_S, self._tell_all)

    def _arrive(self, run: ProgramRun, sizes: SizeKnowledge) -> None:
        self._to_come -= 1
        self._work[self.scheduler.state.grid.next_job] = run.work
        self._step([JobSubmitted(run.user, run.spec(sizes))])

    def _step(self, events: list[Event]) -> Effects:
        if self._information is Information.ORACLE and any(isinstance(event, JobSubmitted) for event in events):
            super()._step([self._report(host) for host in self._hosts.values()])
        return super()._step(events)

    def _tell_all(self) -> None:
        super()._step([self._report(host) for host in self._hosts.values()])
        if self._to_come or self.scheduler.state.jobs:
            self.kernel.at(self.kernel.now + MEASURED_OVER_S, self._tell_all)

    # --- what a machine does --------------------------------------------------------------------------------

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        """Runs travel; cancels arrive at once (they are rare here, and only of what waits or is copied)."""
        host, desk = self._hosts[name], self._desks[name]
        host.seen = assign.seq
        cancelled = [result for attempt in assign.cancel if (result := self._cancel(host, desk, attempt))]
        for run in assign.run:
            desk.queue.append(run.attempt)
            desk.arrives_at[run.attempt] = self.kernel.now + desk.delay_s
        self._go_on(host, desk)
        return [self._report(host, cancelled)] if cancelled else []

    def _cancel(self, host: Host, desk: _Desk, attempt: AttemptId) -> Result | None:
        if attempt in host.running:
            since, end = host.running.pop(attempt)
            end.cancel()
            return Result(attempt, Outcome.CANCELLED, wall_s=self.kernel.now - since)
        if attempt in desk.arrives_at:
            desk.queue.remove(attempt)
            del desk.arrives_at[attempt]
            return Result(attempt, Outcome.CANCELLED)
        return None  # its result is on its way

    def _go_on(self, host: Host, desk: _Desk) -> None:
        """Begin what waits, in the order of its arrival, as long as a slot is free."""
        while desk.queue and len(host.running) < host.facts.slots:
            due = desk.arrives_at[desk.queue[0]]
            if due > self.kernel.now:
                if desk.alarm:
                    desk.alarm.cancel()
                desk.alarm = self.kernel.at(due, partial(self._go_on, host, desk))
                return
            attempt = desk.queue.popleft()
            del desk.arrives_at[attempt]
            self._start(host, attempt)

    def _end_of(self, host: Host, attempt: AttemptId) -> float:
        return host.speed.end_of(self.kernel.now, self._work[attempt.job])

    def _end(self, host: Host, attempt: AttemptId) -> None:
        desk, (since, _) = self._desks[host.name], host.running.pop(attempt)
        desk.ended[attempt] = self.kernel.now - since
        self.kernel.at(self.kernel.now + desk.delay_s, partial(self._deliver, host, attempt))
        self._go_on(host, desk)

    def _deliver(self, host: Host, attempt: AttemptId) -> None:
        wall_s = self._desks[host.name].ended.pop(attempt)
        cpu_s = min(wall_s, self._work[attempt.job] / host.facts.speed)
        self._brought(host, Result(attempt, Outcome.SUCCEEDED, 0, wall_s=wall_s, cpu_s=cpu_s))

    def _report(self, host: Host, results: Sequence[Result] = ()) -> WorkerReported:
        host.seq += 1
        desk, now = self._desks[host.name], self.kernel.now
        holding = [Held(attempt, now - since) for attempt, (since, _) in host.running.items()]
        holding += [Held(attempt, wall_s) for attempt, wall_s in desk.ended.items()]
        load = Load(host.facts.slots, spare_cpu=self._spare(host), delay_s=2 * desk.delay_s)
        report = Report(host.seq, host.seen, tuple(holding), tuple(results), load, stretches(desk.queue))
        return WorkerReported(host.name, host.session, report)

    def _spare(self, host: Host) -> float:
        """Cores that the owner left over lately."""
        now = self.kernel.now
        over_s = min(now, MEASURED_OVER_S)
        if over_s <= 0:
            return 1.0
        return min(1.0, host.speed.work_between(now - over_s, now) / (over_s * host.facts.speed))
