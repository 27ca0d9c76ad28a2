"""The fast world: the live scheduler and computers of fluctuating speed, without links, spools and disks.

It is made for tables of many runs: frames arrive at once and are never lost. The full world has everything else that
a master meets (loopline_simulator/full).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from loopline_master.core.events import (
    Event,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Result
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.transfers import PeerReport
from loopline_shared.protocol.worker_link import Assign, Report
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import size_at
from loopline_simulator.fast.hosts import Speed
from loopline_simulator.kernel import Appointment, Kernel


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time of its submission."""

    at: float
    spec: JobSpec
    scale: float = 1.0  # true work of its tasks over what the spec declares
    owner: str = "user"


@dataclass(slots=True)
class Host:
    """A worker that carries out each Assign as fast as its speed allows."""

    name: str
    facts: Facts
    speed: Speed
    _: KW_ONLY
    seq: int = 0
    seen: int = 0
    running: dict[AttemptId, tuple[float, Appointment]] = field(default_factory=dict)  # since when, until its end
    taken: dict[AttemptId, int] = field(default_factory=dict)  # slots of running attempts
    waiting: dict[AttemptId, int] = field(default_factory=dict)  # slots needed by prefetched attempts
    session: int = 1
    boots: int = 0  # number of times it lost all its attempts
    offered: int | None = None  # slots; None: all it has
    joules_per_work: float = 0.0  # above idle, of a reference CPU-second here; 0: not declared
    unsent: list[Result] = field(default_factory=list)  # of attempts that ended while it was away (changing_world.py)


class FastWorld:
    """A grid in virtual time: ``run`` submits the jobs as they arrive and returns when all have ended."""

    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        observe: Callable[[Effects], None] = lambda effects: None,
    ) -> None:
        """Take ``observe``, which is called with the effects of each step; their entities are the scheduler's own."""
        self.kernel = Kernel()
        self.scheduler = Scheduler()
        self._observe = observe
        self._hosts = {host.name: host for host in hosts}
        self._to_come = 0  # jobs
        self._scales: dict[int, float] = {}  # by job, where the true work is not as declared
        self._asks: tuple[float, Appointment] | None = None  # when the policy is asked again
        self._begin(settings)
        for arrival in arrivals:
            self._to_come += 1
            self.kernel.at(arrival.at, partial(self._submit, arrival))

    def run(self) -> None:
        self.kernel.run()

    def _begin(self, settings: SchedulerSettings) -> None:
        self._step([MasterStarted(settings)])
        self._begin_workers()

    def _begin_workers(self) -> None:
        self._step(
            [WorkerJoined(host.name, host.session, str(host.boots), host.facts) for host in self._hosts.values()]
        )
        self._step([self._report(host) for host in self._hosts.values()])

    def _submit(self, arrival: Arrival) -> None:
        self._to_come -= 1
        if arrival.scale != 1.0:
            self._scales[self.scheduler.state.grid.next_job] = arrival.scale
        self._step([JobSubmitted(arrival.owner, arrival.spec)])

    def _step(self, events: list[Event]) -> Effects:
        return self._carry_out(self.scheduler.step(events, self.kernel.now))

    def _carry_out(self, effects: Effects) -> Effects:
        """Carry out a step's decisions at the hosts, and step again with their immediate reports."""
        self._observe(effects)
        follow_ups = [report for name, assign in effects.assigns.items() for report in self._obey(name, assign)]
        if follow_ups:
            self._step(follow_ups)
        self._ask_again_at(self.scheduler.ask_again_at)
        return effects

    def _ask_again_at(self, at: float | None) -> None:
        """Ask the policy again when it wants; leases are as good as endless here, and need no alarm."""
        if self._asks is not None and at != self._asks[0]:
            self._asks[1].cancel()
            self._asks = None
        if at is not None and self._asks is None:
            self._asks = at, self.kernel.at(max(at, self.kernel.now), self._ask_again)

    def _ask_again(self) -> None:
        self._asks = None
        self._step([])

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        host = self._hosts[name]
        host.seen = assign.seq
        host.waiting |= {run.attempt: run.slots for run in assign.run}
        cancelled = [self._drop(host, attempt) for attempt in assign.cancel]
        self._begin_next(host)
        return [self._report(host, cancelled)] if cancelled else []

    def _drop(self, host: Host, attempt: AttemptId) -> Result:
        if host.waiting.pop(attempt, None) or attempt not in host.running:  # or retracted before it was sent
            return Result(attempt, Outcome.CANCELLED)
        since, end = host.running.pop(attempt)
        del host.taken[attempt]
        end.cancel()
        return Result(attempt, Outcome.CANCELLED, wall_s=self.kernel.now - since)

    def _begin_next(self, host: Host) -> None:
        """Start waiting attempts in order of arrival, as long as there are slots for them."""
        if not host.waiting:
            return
        free = host.facts.slots - sum(host.taken.values())
        for attempt, slots in list(host.waiting.items()):
            if slots <= free:
                free -= slots
                host.taken[attempt] = host.waiting.pop(attempt)
                self._start(host, attempt)

    def _start(self, host: Host, attempt: AttemptId) -> None:
        end = self._end_of(host, attempt)
        host.running[attempt] = (self.kernel.now, self.kernel.at(end, lambda: self._end(host, attempt)))

    def _end_of(self, host: Host, attempt: AttemptId) -> float:
        """Return the time when an attempt that starts now will end; infinity if never."""
        size = size_at(self.scheduler.state.jobs[attempt.job].spec, attempt.task) or 0.0
        return host.speed.end_of(self.kernel.now, size * self._scales.get(attempt.job, 1.0))

    def _end(self, host: Host, attempt: AttemptId) -> None:
        since = self._leave(host, attempt)
        self._brought(host, Result(attempt, Outcome.SUCCEEDED, 0, wall_s=self.kernel.now - since))

    def _leave(self, host: Host, attempt: AttemptId) -> float:
        """End the attempt, start waiting ones, and return its start time."""
        since, _ = host.running.pop(attempt)
        del host.taken[attempt]
        self._begin_next(host)
        return since

    def _brought(self, host: Host, result: Result) -> None:
        self._step([self._report(host, [result])])

    def _report(self, host: Host, results: Sequence[Result] = ()) -> WorkerReported:
        host.seq += 1
        holding = tuple(Held(attempt, self._run_time(attempt, since)) for attempt, (since, _) in host.running.items())
        waiting, files = ranges_of(host.waiting), self._files_of(host)
        report = Report(host.seq, host.seen, holding, tuple(results), self._load(host), waiting=waiting, peers=files)
        return WorkerReported(host.name, host.session, report)

    def _run_time(self, attempt: AttemptId, since: float) -> float:
        return self.kernel.now - since

    def _files_of(self, host: Host) -> PeerReport | None:
        """Return the large files of a host, as it reports them; None if this world has none."""
        return None

    def _load(self, host: Host) -> Load:
        """Return the load that a host reports; its owner's use affects only its speed."""
        return Load(host.facts.slots if host.offered is None else host.offered, float(host.facts.slots))
