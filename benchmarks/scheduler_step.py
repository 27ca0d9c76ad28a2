"""How many Reports a second the pure scheduler works off, and whether that depends on how much there is.

    python benchmarks/scheduler_step.py [--policy NAME ...] [--growth] [--reports 2000] [--json]

A *report* is one WorkerReported event that brings the result of a finished task and frees a slot, which the step fills
again. The grid has 1,000 workers of two speeds and 100,000 queued tasks of known size; steps take 1, 10 and 100 Reports
at a time. Only ``Scheduler.step`` is counted, in CPU seconds of this process; no frame is encoded, nothing is stored.

The yardstick is a bare prototype of the same two events, finish and assign: dicts of what runs, a heap of free
workers, jobs in turn, a command for each start. It has no states, rows, replicas, hold, reconciling nor learning, and
a crash would lose all: what Python itself takes, not what a grid needs.

``--growth``: at 1, 10, 100, 1,000 thousand tasks, at 1 to 1,000 workers, with 8 slots a worker, as one job and as many,
with short tasks of which many wait ahead at their workers. Bytes are those that the scheduler has taken for each
queued task (tracemalloc), and seconds those in which it starts again from its rows.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from master.scheduling.effects import Effects
from master.scheduling.events import JobSubmitted, MasterStarted, SchedulerSettings, WorkerJoined, WorkerReported
from master.scheduling.model import Grid, Job
from master.scheduling.policies import REGISTRY
from master.scheduling.scheduler import Scheduler
from master.scheduling.snapshot import Snapshot
from shared.model import AttemptId, Facts, Held, Load, Order, Outcome, Result
from shared.protocol.messages import Report
from shared.spec import JobSpec, Range, TaskSpec

BATCHES = (1, 10, 100)
ROUNDS = 3
LONG_S, SHORT_S = 60.0, 0.001
"""A task's size. Only of short ones more is sent ahead to workers than they have slots."""


@dataclass(frozen=True)
class Case:
    policy: str = "round-robin"
    tasks: int = 100_000
    workers: int = 1_000
    jobs: int = 1
    slots: int = 1
    task_s: float = LONG_S


class Swarm:
    """The workers: each takes what it is given, and ends what it was given first when told to."""

    def __init__(self, case: Case) -> None:
        self.case, self.scheduler, self.now = case, Scheduler(), 1e9
        settings = SchedulerSettings(case.policy, lease_s=1e6, ahead_s=1.0)
        self.holding: dict[str, deque[AttemptId]] = {f"w{number:04}": deque() for number in range(case.workers)}
        self.seq = dict.fromkeys(self.holding, 0)
        self.cpu_s = 0.0
        self.step([MasterStarted(settings)])
        self.step([JobSubmitted("user", self._spec()) for _ in range(case.jobs)])
        facts = [Facts("linux", "x86_64", "3.11", "0", "pc", case.slots, 8 * 10**9, case.slots, (), 1.0 + n) for n in (0, 1)]
        names = list(self.holding)
        self.step([WorkerJoined(name, n + 1, "boot", facts[n % 2]) for n, name in enumerate(names)])
        self.session = {name: n + 1 for n, name in enumerate(names)}
        self.load = Load(case.slots, spare_cpu=float(case.slots))
        self.step([self._report(name, ()) for name in names])
        while self.step([]).assigns:  # until nobody takes more
            pass

    def work(self, reports: int, batch: int) -> None:
        """So many Reports, in steps of ``batch``, each of the next worker in turn."""
        names = self._in_turn()
        for _ in range(reports // batch):
            self.now += 0.01
            self.step([self._end(next(names)) for _ in range(batch)])

    def step(self, events: list[object]) -> Effects:
        began = time.process_time()
        effects = self.scheduler.step(events, self.now)  # type: ignore[arg-type]
        self.cpu_s += time.process_time() - began
        for name, assign in effects.assigns.items():
            self.holding[name] += [run.attempt for run in assign.run]
            for attempt in assign.cancel:
                if attempt in self.holding[name]:  # else it has just ended
                    self.holding[name].remove(attempt)
        return effects

    def _spec(self) -> JobSpec:
        count = self.case.tasks // self.case.jobs
        sweep = {"i": Range(range=[1, count])}
        return JobSpec(command=["work", "{i}"], parameters=sweep, size=count * self.case.task_s)

    def _in_turn(self) -> Iterator[str]:
        while True:
            yield from (name for name, holding in self.holding.items() if holding)

    def _end(self, name: str) -> WorkerReported:
        attempt = self.holding[name].popleft()
        wall_s = self.case.task_s
        return self._report(name, (Result(attempt, Outcome.SUCCEEDED, 0, wall_s=wall_s, cpu_s=wall_s),))

    def _report(self, name: str, results: tuple[Result, ...]) -> WorkerReported:
        self.seq[name] += 1
        slots = self.case.slots
        holding = tuple(Held(one, waiting=place >= slots) for place, one in enumerate(self.holding[name]))
        report = Report(self.seq[name], self.seq[name], holding, results, self.load)
        return WorkerReported(name, self.session[name] if self.seq[name] > 0 else 0, report)


class Prototype:
    """The yardstick: finish, then assign."""

    def __init__(self, tasks: int, workers: int) -> None:
        self.queued = deque(range(1, tasks + 1))
        self.running: dict[int, tuple[str, float]] = {}
        self.done: dict[int, float] = {}
        self.free = [(0, f"w{number:04}") for number in range(workers)]
        self.held: dict[str, deque[int]] = {name: deque() for _, name in self.free}
        self.cpu_s = 0.0
        self.step([])

    def work(self, reports: int, batch: int) -> None:
        names = list(self.held)
        for start in range(0, reports, batch):
            chosen = [names[at % len(names)] for at in range(start, start + batch)]
            self.step([(name, self.held[name].popleft(), LONG_S) for name in chosen])

    def step(self, results: list[tuple[str, int, float]]) -> dict[str, list[dict[str, object]]]:
        began = time.process_time()
        commands = self._step(results)
        self.cpu_s += time.process_time() - began
        for name, given in commands.items():
            self.held[name] += [int(str(one["task"])) for one in given]
        return commands

    def _step(self, results: list[tuple[str, int, float]]) -> dict[str, list[dict[str, object]]]:
        for name, task, wall_s in results:
            del self.running[task]
            self.done[task] = wall_s
            heappush(self.free, (0, name))
        commands: dict[str, list[dict[str, object]]] = {}
        while self.free and self.queued:
            _, name = heappop(self.free)
            task = self.queued.popleft()
            self.running[task] = (name, 0.0)
            commands.setdefault(name, []).append({"task": task, "command": ["work", str(task)]})
        return commands


@dataclass(frozen=True)
class Figures:
    name: str
    rates: dict[int, float]  # Reports a second of CPU, by how many a step
    bytes_a_task: float | None = None  # that the scheduler has taken, for each queued task
    restart_s: float | None = None  # CPU seconds of a start from rows


def measured(name: str, case: Case, reports: int) -> Figures:
    swarm = Swarm(case)
    swarm.work(min(reports, 2_000), 100 if case.workers * case.slots >= 100 else 1)  # what begins is over
    return Figures(name, _rates(swarm, reports, case.workers * case.slots))


def yardstick(reports: int) -> Figures:
    prototype = Prototype(100_000, 1_000)
    prototype.work(2_000, 100)
    return Figures("(prototype)", _rates(prototype, reports, 1_000))


def _rates(grid: Swarm | Prototype, reports: int, slots: int) -> dict[int, float]:
    """The best of three, taken in turn: others are at work on this computer."""
    rates: dict[int, float] = {}
    for _ in range(ROUNDS):
        for batch in BATCHES:
            if batch <= slots:
                gc.collect()
                grid.cpu_s = 0.0
                grid.work(reports // ROUNDS, batch)
                rates[batch] = max(rates.get(batch, 0.0), reports // ROUNDS // batch * batch / grid.cpu_s)
    return rates


def weighed(name: str, case: Case, listed: bool = False) -> Figures:
    """Memory of the queued tasks beyond their job's spec, and the time of a restart."""
    spec = Swarm._spec_of(case, listed)
    job = Job(1, "user", spec, case.tasks, None, Order.HOLD, 3, 1, arrival=1, submitted_at=0.0)
    snapshot = Snapshot(Grid(next_job=2, sequence=1), [job])
    gc.collect()
    began = time.process_time()
    scheduler = Scheduler(replace(snapshot))
    scheduler.step([MasterStarted(SchedulerSettings(case.policy))], 1e9)
    restart_s = time.process_time() - began
    tracemalloc.start()
    scheduler = Scheduler(replace(snapshot))
    scheduler.step([MasterStarted(SchedulerSettings(case.policy))], 1e9)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Figures(name, {}, taken / case.tasks, restart_s)


def cases(policies: list[str], growth: bool) -> Iterator[tuple[str, Case]]:
    for policy in policies:
        yield policy, Case(policy)
    for policy in policies if growth else ():
        for tasks in (1_000, 10_000, 1_000_000):
            yield f"{policy}, {tasks:,} tasks", Case(policy, tasks=max(tasks, 20_000) if tasks < 20_000 else tasks)
        for workers in (1, 10, 100):
            yield f"{policy}, {workers} workers", Case(policy, workers=workers)
        yield f"{policy}, 8 slots", Case(policy, slots=8, workers=125)
        yield f"{policy}, 1,000 jobs", Case(policy, jobs=1_000)
        yield f"{policy}, 1 ms tasks", Case(policy, workers=100, tasks=1_000_000, task_s=SHORT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", nargs="*", default=sorted(REGISTRY), choices=sorted(REGISTRY))
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--reports", type=int, default=3_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = []
    if not chosen.json:
        print(f"{'':34s}" + "".join(f"{f'{batch} a step':>13s}" for batch in BATCHES), flush=True)
    for figures in _all(chosen):
        found.append(figures)
        if not chosen.json:
            _show(figures)
    if chosen.json:
        print(json.dumps([asdict(figures) for figures in found], indent=2))


def _all(chosen: argparse.Namespace) -> Iterator[Figures]:
    yield yardstick(chosen.reports)
    for name, case in cases(chosen.policy, chosen.growth):
        yield measured(name, case, chosen.reports)


def _show(figures: Figures) -> None:
    rates = "".join(f"{rate:13,.0f}" for rate in figures.rates.values())
    print(f"{figures.name:34s}{rates}", flush=True)


if __name__ == "__main__":
    main()
