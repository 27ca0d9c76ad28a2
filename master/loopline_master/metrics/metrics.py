"""Metrics for Prometheus: made from committed effects, stored rows, and the scheduler's state.

Between steps the invariants of the live scheduler are checked, one sample at a time, and counted among them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.invariants import check_job, check_worker
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.core.wings.power.sleeper import Sleepers
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.core.wings.resources.limit import WHOLE_GRID
from loopline_master.core.wings.trust.trust import Mismatch
from loopline_master.metrics.latest_steps import BOUNDS_S, LatestSteps
from loopline_master.metrics.user_costs import UserCosts
from loopline_master.timings import INVARIANT_SAMPLE_EVERY_S, LAG_EVERY_S
from loopline_shared.model import AttemptId, AttemptState
from loopline_shared.protocol.checkpoints import CheckpointCosts
from loopline_shared.rest.bodies import PassingReport, Sizes

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4

log = logging.getLogger(__name__)
Key = TypeVar("Key")


class Metrics:
    """The metrics of one run of the master. Counters begin at zero with each run, as Prometheus expects."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._dispatched = self._totals("attempts_dispatched", "Attempts sent to workers", "replica")
        self._jobs_ended = self._totals("jobs_ended", "Jobs that ended", "state")
        self._tasks_ended = self._totals("tasks_ended", "Tasks that ended", "state")
        self._attempts_ended = self._totals("attempts_ended", "Attempts that ended", "state")
        self._live = {
            "jobs": self._gauge("jobs", "Jobs in the grid", "state"),
            "attempts": self._gauge("attempts", "Attempts that are not over", "state"),
            "workers": self._gauge("workers", "Workers known", "state"),
            "slots": self._gauge("slots", "Slots of connected workers", "state"),
        }
        self._yield_s = self._gauge(
            "owner_yield_seconds", "From the owner's input until tasks were frozen, by worker", "worker", "quantile"
        )
        self._yields = self._gauge("owner_yields", "How often that was measured since the agent started", "worker")
        self._programs = self._gauge("programs", "Programs of which runs are remembered")
        self._passings = self._gauge("passings", "Completions that passed an earlier job; must be 0")
        self._completions = self._gauge("completions_checked", "Completions checked for passings")
        self._transfers = self._gauge("file_transfers", "Large files on their way to workers", "source")
        self._transfer_rate = self._gauge(
            "file_transfer_bytes_per_second", "Large files on their way: their rates together", "source"
        )
        self._transfer_left = self._gauge("file_transfer_left_bytes", "... and what has yet to come", "source")
        self._peer_bytes = self._counter("peer_bytes", "Bytes of files that workers took from one another")
        self._overstated = self._counter("overstated_results", "Results whose times or memory were far from possible")
        self._peer_faults = self._counter("peer_faults", "Workers that failed others as a source", "kind")
        self._plan_s = self._histogram("transfer_plan_seconds", "A plan of transfers: made")
        self._samples = self._counter("invariant_samples", "Samples of the scheduler's invariants that were checked")
        self._breaches = self._counter("invariant_breaches", "... of these, breaches; must be 0, the log has each")
        self._service_failures = self._counter(
            "service_failures", "Failures of services beside the engine", "service"
        )
        self._service_failing = self._gauge(
            "service_failing", "1 while a service has failed and not recovered", "service"
        )
        self._lag = self._gauge("event_loop_lag_seconds", "How late the event loop was, last time it was measured")
        self.latest = LatestSteps(self._registry)
        self._user_step_s = self._totals(
            "user_step_seconds", "Time of steps, by the user of their jobs; empty: none", "user"
        )
        self._database = self._gauge("database_bytes", "Size of the database")
        self._files = self._gauge("files_bytes", "Size of the folder of files, measured every quarter of an hour")
        self._disk_free = self._gauge("disk_free_bytes", "Free space where the master keeps its data")
        self._log_entries = self._gauge("event_log_entries", "Entries of the event log")
        self._log_written = self._counter("event_log_bytes", "Event log that was written")
        self._log_counted = 0
        self._checkpoints, self._energy = CheckpointCounters(self._registry), EnergyCounter(self._registry)
        self._units = UnitGauges(self._registry)
        self.costs = UserCosts()
        self.lag_s, self.started_at = 0.0, time.time()

    def charge_step(self, effects: Effects, state: State, took_s: float) -> None:
        """Charge a step's time to the users whose jobs it was about."""
        for user, part_s in self.costs.charge_step(effects, state, took_s).items():
            self._user_step_s.of[user,] += part_s

    def count(self, effects: Effects) -> None:
        """Count what a step has begun and ended. No two have the same time: all that happened now is its own."""
        now = effects.grid.now
        for job in effects.jobs.values():
            if job.finished_at == now:
                self._jobs_ended.of[job.state,] += 1
        for task in effects.tasks.values():
            if task.finished_at == now:
                self._tasks_ended.of[task.state,] += 1
        for attempt in effects.attempts.values():
            if attempt.dispatched_at == now:
                self._dispatched.of["true" if attempt.replica else "false",] += 1
            if attempt.ended_at == now:
                self._attempts_ended.of[attempt.state,] += 1
        self._checkpoints.count(effects)
        self._energy.count(effects)
        if effects.overstated:
            self._overstated.inc(len(effects.overstated))

    def count_sample(self, *, is_breach: bool) -> None:
        """Count a sample of the invariants."""
        self._samples.inc()
        if is_breach:
            self._breaches.inc()

    def count_service_failure(self, service: str) -> None:
        """Count a failure of a service that runs beside the engine."""
        self._service_failures.labels(service).inc()

    def set_service_failing(self, service: str, *, is_failing: bool) -> None:
        """Set whether a service has failed and not recovered."""
        self._service_failing.labels(service).set(is_failing)

    def set_transfers(self, source: str, count: int, rate_bytes_s: float, left_bytes: int) -> None:
        """Set how many large files come from a source, peer or master, how fast together, and how much is left."""
        self._transfers.labels(source).set(count)
        self._transfer_rate.labels(source).set(rate_bytes_s)
        self._transfer_left.labels(source).set(left_bytes)

    def set_sizes(self, sizes: Sizes) -> None:
        """Set how large the master's data are."""
        self._database.set(sizes.database_bytes)
        self._files.set(sizes.files_bytes)
        self._disk_free.set(sizes.disk_free_bytes)
        self._log_entries.set(sizes.log_entries)
        self._log_written.inc(sizes.log_bytes - self._log_counted)
        self._log_counted = sizes.log_bytes

    def count_peer_bytes(self, count: int) -> None:
        """Count bytes that a worker took from others."""
        self._peer_bytes.inc(count)

    def count_peer_fault(self, kind: str) -> None:
        """Count a worker that failed another one as a source."""
        self._peer_faults.labels(kind).inc()

    def observe_plan(self, took_s: float) -> None:
        """Count a plan of transfers."""
        self._plan_s.observe(took_s)

    async def watch_loop(self) -> None:
        """Measure the lag of the event loop regularly, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.lag_s = max(0.0, loop.time() - due)
            self._lag.set(self.lag_s)

    def render(self, scheduler: Scheduler, audit: PassingReport) -> bytes:
        """Return all metrics in Prometheus' text format."""
        state = scheduler.state
        connected = [worker for worker in state.workers.values() if worker.session is not None]
        self._set("jobs", (job.state for job in state.jobs.values() if not job.is_over))
        self._set("attempts", (attempt.state for attempt in state.attempts.values()))
        self._live["workers"].labels("connected").set(len(connected))
        asleep = sum(sleeper.is_asleep for sleeper in state.own(Sleepers).of.values())
        self._live["workers"].labels("asleep").set(asleep)
        self._live["workers"].labels("away").set(len(state.workers) - len(connected) - asleep)
        quarantined = sum(worker.quarantined_until is not None for worker in connected)
        self._live["workers"].labels("quarantined").set(quarantined)
        self._programs.set(len(state.programs))
        self._live["slots"].labels("offered").set(sum(worker.offered for worker in connected))
        used = state.index.attempts.used
        self._live["slots"].labels("used").set(sum(used.get(worker.name, 0) for worker in connected))
        self._set_yields(connected)
        self._passings.set(audit.passings)
        self._completions.set(audit.completions)
        self._units.set(state.own(CountedUnits))
        return generate_latest(self._registry)

    def _set_yields(self, workers: Iterable[Worker]) -> None:
        """Set the yield times that workers measured; those whose owners never came back are left out."""
        self._yield_s.clear()
        self._yields.clear()
        for worker in workers:
            if worker.load and (yielded := worker.load.yielded).count:
                self._yield_s.labels(worker.name, "0.5").set(yielded.p50_s)
                self._yield_s.labels(worker.name, "0.99").set(yielded.p99_s)
                self._yields.labels(worker.name).set(yielded.count)

    def _set(self, kind: str, states: Iterable[str]) -> None:
        self._live[kind].clear()
        for state, count in Counts(states).items():
            self._live[kind].labels(state).set(count)

    def _totals(self, name: str, text: str, *labels: str) -> Totals:
        return Totals(self._registry, f"loopline_{name}", text, *labels)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"loopline_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"loopline_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"loopline_{name}", text, buckets=BOUNDS_S, registry=self._registry)


class InvariantSampler:
    """Picks a job and a worker at random every few seconds. A breach is logged and counted; the master continues."""

    def __init__(self, scheduler: Scheduler, metrics: Metrics) -> None:
        self._scheduler, self._metrics = scheduler, metrics
        self._sampled_at = float("-inf")

    def after_step(self) -> None:
        """Take a sample if one is due; to be called when a step is over, and before the next one begins."""
        now = self._scheduler.state.now
        if now - self._sampled_at >= INVARIANT_SAMPLE_EVERY_S:
            self._sampled_at = now
            self.sample()

    def sample(self) -> None:
        """Check one job and one worker."""
        state = self._scheduler.state
        try:
            if state.jobs:
                check_job(state, _any_of(state.jobs))
            if state.workers:
                check_worker(state, _any_of(state.workers))
        except AssertionError as breach:
            log.error("the scheduler breaks an invariant, which is a bug of Loopline: %s", breach)
            self._metrics.count_sample(is_breach=True)
        else:
            self._metrics.count_sample(is_breach=False)


def _any_of(keys: Collection[Key]) -> Key:
    return next(islice(keys, random.randrange(len(keys)), None))  # noqa: S311 no secret


def step_watcher(metrics: Metrics, sampler: InvariantSampler, state: State) -> Callable[..., None]:
    """Return the callback after each step: it counts the step, samples the invariants, and warns of results that
    differ and of impossible figures.
    """

    def watch(effects: Effects, took_s: float, commit_s: float, waiting: int) -> None:
        metrics.count(effects)
        metrics.latest.add(took_s, commit_s, waiting)
        metrics.charge_step(effects, state, took_s)
        sampler.after_step()
        for worker, attempt in effects.overstated:
            log.warning("worker %s reported impossible figures for attempt %s: they were cut", worker, attempt)
        for one in effects.told(Mismatch):
            log.warning("task %s: two of its results differ; `loopline explain %s` says more", one.task, one.task)

    return watch


class Totals:
    """A counter with labels; ``of`` has its numbers by their values."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels, self._began = name, text, labels, time.time()
        self.of: dict[tuple[str, ...], float] = defaultdict(float)
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the numbers as Prometheus reads them."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, number in self.of.items():
            family.add_metric(values, number, created=self._began)
        yield family


class CheckpointCounters:
    """Counts the checkpoints of all tasks since the master started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = Counter("loopline_checkpoints", "Checkpoints of tasks that workers sent", registry=registry)
        self._sent_bytes = Counter("loopline_checkpoint_bytes", "... their bytes", registry=registry)
        self._held_s = Counter(
            "loopline_checkpoint_held_seconds", "... time that tasks were stopped for them", registry=registry
        )
        self._kept_s = Counter(
            "loopline_checkpoint_kept_cpu_seconds", "CPU time of stopped attempts that they saved", registry=registry
        )

    def count(self, effects: Effects) -> None:
        """Count the checkpoints of a step, and the time that they saved of attempts that have ended."""
        for costs in effects.told(CheckpointCosts):
            self._sent.inc(costs.sent)
            self._sent_bytes.inc(costs.sent_bytes)
            self._held_s.inc(costs.held_s)
        for attempt in effects.attempts.values():
            if attempt.kept_cpu_ms and attempt.ended_at == effects.grid.now:
                self._kept_s.inc(attempt.kept_cpu_ms / 1000)


class EnergyCounter:
    """Counts the energy of attempts since the master started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Energy measured or declared for attempts that ended; counts: the result was accepted or is a vote"
        self._joules = Totals(registry, "loopline_energy_joules", text, "source", "counts")
        self._of_open = defaultdict[AttemptId, list[AttemptEnergy]](list)
        """Of attempts that have not ended: members of a gang whose other members still run."""

    def count(self, effects: Effects) -> None:
        """Count the energy of attempts that ended in a step."""
        for energy in effects.rows(AttemptEnergy).values():
            self._of_open[AttemptId(energy.job, energy.task, energy.number)].append(energy)
        for id_ in self._of_open.keys() & effects.attempts.keys():
            attempt = effects.attempts[id_]
            if attempt.ended_at is None:
                continue
            is_vote = attempt.asked and attempt.state is AttemptState.SUCCEEDED
            counts = "true" if attempt.accepted or is_vote else "false"
            for energy in self._of_open.pop(id_):
                self._joules.of[energy.source, counts] += energy.joules


class UnitGauges:
    """Shows the counts of the scheduler. The check of starts begins at zero with each run of the master."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._limits = Gauge(
            "loopline_limit_units", "Units that a limit of the grid allows", ["limit"], registry=registry
        )
        self._used = Gauge("loopline_limit_units_used", "... units that attempts hold", ["limit"], registry=registry)
        self._starts = Gauge("loopline_unit_starts", "Attempts that took units as they started", registry=registry)
        self._beyond = Gauge(
            "loopline_unit_starts_beyond_limit", "... of these, beyond a limit in force; must be 0", registry=registry
        )

    def set(self, counts: CountedUnits) -> None:
        """Take over the counts."""
        self._limits.clear()
        self._used.clear()
        for name, allowed in counts.allowed.items():
            self._used.labels(name).set(counts.used[name, WHOLE_GRID])
            if WHOLE_GRID in allowed:
                self._limits.labels(name).set(allowed[WHOLE_GRID])
        self._starts.set(counts.starts)
        self._beyond.set(counts.starts_beyond)
