"""Reports per second that the pure scheduler handles, and their dependence on the size of the grid.

    python benchmarks/master/scheduler_step.py [--policy NAME ...] [--growth] [--reports 2000] [--json]

A *report* is one WorkerReported event that brings the result of a finished task and frees a slot, which the step
fills again. The grid has 1,000 workers of two speeds and 100,000 queued tasks of known size (a minute each); steps
take in 1, 10 and 100 Reports. Only ``Scheduler.step`` is counted, in CPU seconds of this process, the best of three
rounds: no frame is encoded, nothing is stored. Beside the rates: the memory of each queued task in the state of a
scheduler started from rows (tracemalloc; without the job's spec), and the CPU seconds of that start.

The yardstick is a bare prototype of the same two actions, finish and assign: the same Reports in, the same Assigns
out, the same rows made and changed, over a dict of running tasks, a heap of free workers and a queue. It has no hold,
no replicas, no leases and no policies, reconciles and learns nothing, and could not restart from its rows. It shows
the cost of messages and rows alone, which no scheduler in Python can avoid.

``--growth``: also other numbers of tasks, workers, slots and jobs, jobs with different requirements or needs of
resources, and very short tasks, hundreds of them prefetched at each worker; a Report then brings five results at once
and lists all held attempts (rates are of results).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_master.core.events import (
    Event,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Task, Worker
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import (
    AttemptId,
    AttemptState,
    Facts,
    Held,
    Load,
    Order,
    Outcome,
    Resource,
    Result,
    TaskState,
)
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.worker_link import Assign, Report, Run
from loopline_shared.spec import JobSpec, TaskSpec

gc.set_threshold(50_000, 20, 20)  # as the master has it

BATCHES = (1, 10, 100)
ROUNDS = 3
NOW = 1e9
RESOURCES = [f"r{number}" for number in range(8)]


@dataclass(frozen=True)
class Case:
    policy: str = "round-robin"
    tasks: int = 100_000
    workers: int = 1_000
    jobs: int = 1
    slots: int = 1
    task_s: float = 60.0  # a task's size; of short ones more are sent to workers than they have slots
    results: int = 1  # of a Report
    listed: bool = False  # task by task, not as a sweep
    requirements: int = 1  # number of different memory requirements, in turn; all workers meet them
    units: bool = False  # they also need units of resources; each worker offers four of eight

    @property
    def spec(self) -> JobSpec:
        """Specification of each job."""
        count = self.tasks // self.jobs
        if self.listed:
            tasks = [TaskSpec(parameters={"i": n}, size=self.task_s * (1 + n % 3)) for n in range(count)]
            return JobSpec(command=["work", "{i}"], tasks=tasks)
        return JobSpec(command=["work", "{i}"], parameters={"i": Range(range=[1, count])}, size=count * self.task_s)

    @property
    def submissions(self) -> list[JobSubmitted]:
        """The jobs."""
        needs = [
            Requirements(memory_bytes=1_000_000 * number, needs=_needs(number) if self.units else {})
            for number in range(self.requirements)
        ]
        spec, which = self.spec, cycle(needs)
        return [JobSubmitted("user", spec.model_copy(update={"requires": next(which)})) for _ in range(self.jobs)]


@dataclass(frozen=True)
class Figures:
    name: str
    rates: dict[int, float]  # results a second of CPU, by how many Reports a step takes in
    bytes_a_task: float | None = None
    restart_s: float | None = None


class Swarm:
    """Workers and their scheduler: each worker accepts its orders, and ends the oldest one on demand."""

    def __init__(self, case: Case) -> None:
        self.case, self.now, self.cpu_s = case, NOW, 0.0
        self.holding: dict[str, deque[AttemptId]] = {f"w{number:04}": deque() for number in range(case.workers)}
        self.seq = dict.fromkeys(self.holding, 0)
        self.load = Load(case.slots, spare_cpu=float(case.slots))
        self.facts = [_facts(case.slots, speed, units=case.units) for speed in (1.0, 2.0)]
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def assigns_of(self, events: Sequence[Event]) -> dict[str, Assign]:
        raise NotImplementedError

    def work(self, reports: int, batch: int) -> None:
        """Send this many Reports, in steps of ``batch``, each from the next worker in turn."""
        names = self._in_turn()
        for _ in range(reports // batch):
            self.now += 0.01
            self.step([self._end(next(names)) for _ in range(batch)])

    def step(self, events: Sequence[Event]) -> bool:
        """Step the scheduler; True if it sent any Assign."""
        began = time.process_time()
        assigns = self.assigns_of(events)
        self.cpu_s += time.process_time() - began
        for name, assign in assigns.items():
            self.holding[name] += [run.attempt for run in assign.run]
            for attempt in assign.cancel:
                if attempt in self.holding[name]:  # else it has just ended
                    self.holding[name].remove(attempt)
        return bool(assigns)

    def _in_turn(self) -> Iterator[str]:
        while True:
            yield from (name for name, holding in self.holding.items() if len(holding) >= self.case.results)

    def _end(self, name: str) -> WorkerReported:
        wall_s, holding = self.case.task_s, self.holding[name]
        ended = [holding.popleft() for _ in range(self.case.results)]
        results = [Result(one, Outcome.SUCCEEDED, 0, wall_s=wall_s, cpu_s=wall_s) for one in ended]
        return self.report(name, tuple(results))

    def report(self, name: str, results: tuple[Result, ...] = ()) -> WorkerReported:
        self.seq[name] += 1
        seq, held, slots = self.seq[name], list(self.holding[name]), self.case.slots
        holding, waiting = tuple(map(Held, held[:slots])), ranges_of(held[slots:])
        return WorkerReported(name, 1, Report(seq, seq, holding, results, self.load, waiting=waiting))


class Loopline(Swarm):
    def begin(self) -> None:
        self.scheduler = Scheduler()
        self.step([MasterStarted(SchedulerSettings(self.case.policy, lease_s=1e6, prefetch_s=1.0))])
        self.step(self.case.submissions)
        self.step([WorkerJoined(name, 1, "boot", self.facts[n % 2]) for n, name in enumerate(self.holding)])
        self.step([self.report(name) for name in self.holding])
        while self.step([]):  # until no worker accepts more
            pass

    def assigns_of(self, events: Sequence[Event]) -> dict[str, Assign]:
        effects: Effects = self.scheduler.step(events, self.now)
        return effects.assigns


class Prototype(Swarm):
    """The yardstick."""

    def begin(self) -> None:
        self.queued = deque(range(1, self.case.tasks + 1))
        self.running: dict[AttemptId, tuple[Task, Attempt]] = {}
        self.workers = {name: Worker(name, "boot", self.facts[0], NOW, NOW) for name in self.holding}
        self.free = [(0, name) for name in self.holding]
        self.step([])

    def assigns_of(self, events: Sequence[Event]) -> dict[str, Assign]:
        rows: list[Task | Attempt] = []
        for event in events:
            assert isinstance(event, WorkerReported)
            for result in event.report.results:
                task, attempt = self.running.pop(result.attempt)
                attempt.state, task.state, task.winner = AttemptState.SUCCEEDED, TaskState.SUCCEEDED, attempt.number
                attempt.ended_at = task.finished_at = self.now
                attempt.wall_s, attempt.cpu_s, attempt.stdout = result.wall_s, result.cpu_s, result.stdout
                rows += (task, attempt)
                heappush(self.free, (0, event.worker))
        runs: dict[str, list[Run]] = {}
        while self.free and self.queued:
            _, name = heappop(self.free)
            task = Task(1, self.queued.popleft(), TaskState.RUNNING, started=True, attempts=1)
            attempt = Attempt(1, task.number, 1, name, 1, replica=False, dispatched_at=self.now)
            self.running[attempt.id] = task, attempt
            rows += (task, attempt)
            run = Run(attempt.id, ("work", str(task.number)), {"i": task.number}, {})
            runs.setdefault(name, []).append(run)
        return {name: self._assign(self.workers[name], given) for name, given in runs.items()}

    def _assign(self, worker: Worker, runs: list[Run]) -> Assign:
        worker.assigned += 1
        return Assign(worker.assigned, worker.assigned, tuple(runs))


def _facts(slots: int, speed: float, *, units: bool = False) -> Facts:
    offered = RESOURCES[int(speed) % 2 :: 2] if units else ()
    return Facts(
        "linux", "x86_64", "3.11", "0", "pc", cpus=slots, memory_bytes=8 * 10**9, slots=slots, labels=(), speed=speed,
        resources=tuple(Resource(name, 2) for name in offered),
    )  # fmt: skip


def _needs(number: int) -> dict[str, int]:
    """Return needs of one to three resources of the same worker."""
    offered = RESOURCES[number % 2 :: 2]
    return dict.fromkeys([offered[(number // 2 + more) % 4] for more in range(1 + number // 2 % 3)], 1)


def rates(swarm: Swarm, reports: int) -> dict[int, float]:
    """Return the best of several rounds, since other programs may run; batch sizes take turns."""
    case = swarm.case
    reports = min(reports, (case.tasks // case.results - 3 * case.workers * case.slots) // len(BATCHES))
    swarm.work(case.workers * case.slots, 1)  # from here on every worker is in the middle of its work
    found: dict[int, float] = {}
    for _ in range(ROUNDS):
        for batch in BATCHES:
            if batch <= case.workers * case.slots and batch <= reports // ROUNDS:
                gc.collect()
                swarm.cpu_s = 0.0
                swarm.work(reports // ROUNDS, batch)
                results = reports // ROUNDS // batch * batch * case.results
                found[batch] = max(found.get(batch, 0.0), results / swarm.cpu_s)
    return found


def weighed(case: Case) -> tuple[float, float]:
    """Bytes a queued task and seconds, of a start from rows."""
    spec = case.spec
    job = Job(1, "user", spec, case.tasks, spec.known_size, Order.HOLD, 3, 2, arrival=1, submitted_at=NOW)
    grid = Grid(next_job=2, sequence=1)

    def start() -> Scheduler:
        scheduler = Scheduler(Snapshot(grid, [job]))
        scheduler.step([MasterStarted(SchedulerSettings(case.policy))], NOW)
        return scheduler

    start()
    began = time.process_time()
    start()
    restart_s = time.process_time() - began
    tracemalloc.start()
    kept = start()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.state.jobs
    return taken / case.tasks, restart_s


def figures_of(policies: list[str], reports: int, *, growth: bool) -> Iterator[Figures]:
    yield Figures("(prototype)", rates(Prototype(Case()), reports))
    for policy in policies:
        yield Figures(policy, rates(Loopline(Case(policy)), reports), *weighed(Case(policy)))
    for policy in policies if growth else policies[-1:]:
        for what, case in grown(policy):
            yield Figures(f"{policy}: {what}", rates(Loopline(case), reports), *weighed(case))
    for policy in ("round-robin", "fair"):
        yield Figures(f"{policy}: 100,000 listed", {}, *weighed(Case(policy, listed=True)))


def grown(policy: str) -> Iterator[tuple[str, Case]]:
    for tasks in (1_000, 10_000, 100_000, 1_000_000):
        yield f"{tasks:,} tasks", Case(policy, tasks, workers=100)
    for workers in (1, 10):
        yield f"{workers:,} worker{'s' * (workers > 1)}", Case(policy, workers=workers)
    yield "8 slots", Case(policy, workers=125, slots=8)
    yield "1,000 jobs", Case(policy, jobs=1_000)
    yield "1,000 jobs, all different", Case(policy, jobs=1_000, requirements=1_000)
    for units in (False, True):
        case = Case(policy, 200_000, jobs=10_000, slots=4, requirements=50, units=units)
        yield f"10,000 jobs, 50 {'needs of units' if units else 'different'}", case
    yield "tasks of 1 ms", Case(policy, workers=100, task_s=0.001, results=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", nargs="*", default=_default_last(), choices=sorted(REGISTRY))
    parser.add_argument("--growth", action="store_true", help="of every policy, not only of the last")
    parser.add_argument("--reports", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = []
    if not chosen.json:
        head = "".join(f"{f'{batch} a step':>12s}" for batch in BATCHES)
        print(f"{'results a second':32s}{head}{'bytes a task':>14s}{'restart':>10s}", flush=True)
    for figures in figures_of(chosen.policy, chosen.reports, growth=chosen.growth):
        found.append(figures)
        if not chosen.json:
            _show(figures)
    if chosen.json:
        print(json.dumps([asdict(figures) for figures in found], indent=2))


def _default_last() -> list[str]:
    default = SchedulerSettings().policy
    return [*sorted(REGISTRY.keys() - {default}), default]


def _show(figures: Figures) -> None:
    shown = "".join(f"{figures.rates[batch]:12,.0f}" if batch in figures.rates else " " * 12 for batch in BATCHES)
    memory = f"{figures.bytes_a_task:14,.1f}" if figures.bytes_a_task is not None else ""
    restart = f"{figures.restart_s:8.3f} s" if figures.restart_s is not None else ""
    print(f"{figures.name:32s}{shown}{memory}{restart}", flush=True)


if __name__ == "__main__":
    main()
