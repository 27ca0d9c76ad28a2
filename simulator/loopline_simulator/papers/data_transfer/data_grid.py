"""Grids whose tasks need files and computing time: one scheduled in rounds, as in the paper, and one by the master.

Both share computers, tasks and network. A computer begins a task once all of the task's files are there, and keeps
them. Files travel as the planner says (``strategies.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from math import inf

from loopline_master.core.events import Event, MasterStarted, NetworkChanged, SchedulerSettings
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand
from loopline_master.transfers.solver import solve
from loopline_shared.model import AttemptId, Facts
from loopline_shared.protocol.transfers import CachedFile, Fetching, PeerReport
from loopline_shared.protocol.worker_link import Assign
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.kernel import Appointment, Kernel
from loopline_simulator.papers.data_transfer.assignment import Assessment, Assignment, AssignmentRequest
from loopline_simulator.papers.data_transfer.fluid_network import FluidNetwork
from loopline_simulator.papers.data_transfer.strategies import PATIENCE_S, Planned

DISK_RATE = 200e6
"""Bytes per second that a host reads from its own disk."""
_PORT = 7462


@dataclass(frozen=True, slots=True)
class DataTask:
    """A task: the files that it needs, and its computing time on a computer of speed 1, in seconds."""

    files: tuple[str, ...]
    work: float


@dataclass(frozen=True, slots=True)
class DataGrid:
    """The start of a run. Files are named by their SHA-256."""

    nodes: tuple[NetworkNode, ...]
    sizes: dict[str, float]  # of each file, in bytes
    holders: dict[str, tuple[str, ...]]
    tasks: tuple[DataTask, ...]
    speeds: dict[str, float]  # of each host


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the next round begins: once this many hosts are idle, or this long after one has become idle."""

    idle: int
    after_s: float = inf


def file_name(title: str) -> str:
    """Return the name of a file in a job's specification."""
    return sha256(title.encode()).hexdigest()


class FileTraffic:
    """Files on their way, in the virtual time of a kernel."""

    def __init__(self, grid: DataGrid, kernel: Kernel, on_arrival: Callable[[str, list[str]], None]) -> None:
        """``on_arrival`` is called with a host and the files that have arrived there at the same time."""
        self.fluid = FluidNetwork(Network(grid.nodes), grid.sizes, grid.holders, Planned(solve), PATIENCE_S)
        self.has = {host: {file for file, names in grid.holders.items() if host in names} for host in grid.speeds}
        self._kernel, self._on_arrival = kernel, on_arrival
        self._next: Appointment | None = None

    def want(self, files: Iterable[str], host: str) -> None:
        """Fetch the files that the host lacks and does not fetch yet."""
        lacking = [file for file in files if file not in self.has[host] and (file, host) not in self.fluid.waiting]
        if lacking:
            self._flow()
            for file in lacking:
                self.fluid.want(Demand(file, host))
            self._call_at(self._kernel.now)  # once all demands of this moment are there

    def _go_on(self) -> None:
        self._flow()
        self.fluid.plan()
        if (at := self.fluid.next_at) < inf:
            self._call_at(max(at, self._kernel.now))

    def _call_at(self, at: float) -> None:
        if self._next:
            self._next.cancel()
        self._next = self._kernel.at(at, self._go_on)

    def _flow(self) -> None:
        arrived: dict[str, list[str]] = {}
        for one in self.fluid.flow_until(self._kernel.now):
            arrived.setdefault(one.demand.host, []).append(one.demand.file)
            self.has[one.demand.host].add(one.demand.file)
        for host, files in arrived.items():
            self._kernel.at(self._kernel.now, partial(self._on_arrival, host, files))


Search = Callable[[Assessment, int, int], Assignment]
"""A way to an assignment: (assessment, seed, plans that may be made)."""


class RoundsWorld:
    """Gives each idle host one task in each round (Takahashi et al., section 2). Running transfers continue."""

    def __init__(self, grid: DataGrid, search: Search, trigger: Trigger, seed: int, plans: int) -> None:
        self.ended: dict[int, float] = {}  # by task: when
        self.kernel, self.rounds, self.plans = Kernel(), 0, 0
        self._grid, self._search, self._trigger = grid, search, trigger
        self._seed, self._most_plans = seed, plans
        self.traffic = FileTraffic(grid, self.kernel, self._begin)
        self._idle = dict.fromkeys(grid.speeds, 0.0)
        self._left = list(range(len(grid.tasks)))
        self._given: dict[str, int] = {}  # by host: a task that waits for its files
        self._alarm: Appointment | None = None
        self.kernel.at(0.0, self._round)

    def run(self) -> None:
        self.kernel.run()

    def _round(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._alarm = None
        if not self._left or not self._idle:
            return
        grid, fluid = self._grid, self.traffic.fluid
        hosts, waiting = tuple(self._idle), tuple(self._left)
        tasks = tuple(grid.tasks[task].files for task in waiting)
        demands = tuple(one.demand for one in fluid.waiting.values())
        request = AssignmentRequest(
            fluid.network, fluid.holders, tasks, hosts, DISK_RATE, running=fluid.flows, demands=demands
        )
        assessment = Assessment(request, solve)
        found = self._search(assessment, self._seed + 1000 * self.rounds, self._most_plans)
        self.rounds, self.plans = self.rounds + 1, self.plans + assessment.made
        for host, place in zip(hosts, found.order, strict=False):
            if place < len(waiting):
                self._left.remove(waiting[place])
                del self._idle[host]
                self._given[host] = waiting[place]
                self.traffic.want(tasks[place], host)
                self._begin(host, [])

    def _begin(self, host: str, arrived: list[str]) -> None:
        """Compute the host's task if its files are there."""
        task = self._given.get(host)
        if task is None or not self.traffic.has[host].issuperset(self._grid.tasks[task].files):
            return
        del self._given[host]
        took_s = self._grid.tasks[task].work / self._grid.speeds[host]
        self.kernel.at(self.kernel.now + took_s, lambda: self._end(host, task))

    def _end(self, host: str, task: int) -> None:
        self.ended[task] = self.kernel.now
        self._idle[host] = self.kernel.now
        if len(self._idle) >= min(self._trigger.idle, len(self._grid.speeds)):
            self._round()
        elif self._alarm is None and self._trigger.after_s < inf:
            self._alarm = self.kernel.at(self.kernel.now + self._trigger.after_s, self._round)


class LiveWorld(FastWorld):
    """The live scheduler. Its workers report their files, and fetch those of prefetched tasks, too."""

    def __init__(self, grid: DataGrid, settings: SchedulerSettings) -> None:
        self.ended: dict[int, float] = {}  # by task: when
        self._grid, self._computing = grid, set[AttemptId]()
        tasks = [
            TaskSpec(size=task.work, inputs={f"input-{n}": f"sha256:{file}" for n, file in enumerate(task.files)})
            for task in grid.tasks
        ]
        hosts = [Host(name, _facts(speed), Steady(speed)) for name, speed in grid.speeds.items()]
        super().__init__(settings, hosts, [Arrival(0.0, JobSpec(command=["work"], tasks=tasks))])

    def _begin(self, settings: SchedulerSettings) -> None:
        self.traffic = FileTraffic(self._grid, self.kernel, self._arrive)
        self._step([MasterStarted(settings), NetworkChanged(self._grid.nodes)])
        super()._begin_workers()

    def _obey(self, name: str, assign: Assign) -> list[Event]:
        follow_ups = super()._obey(name, assign)
        for attempt in self._hosts[name].waiting:
            self.traffic.want(self._files(attempt), name)
        return follow_ups

    def _start(self, host: Host, attempt: AttemptId) -> None:
        host.running[attempt] = self.kernel.now, Appointment(lambda: None)
        self.traffic.want(self._files(attempt), host.name)
        self._compute(host)

    def _arrive(self, name: str, files: list[str]) -> None:
        host = self._hosts[name]
        self._compute(host)
        self._step([self._report(host)])

    def _compute(self, host: Host) -> None:
        """Begin to compute the tasks whose files are there."""
        for attempt in [one for one in host.running if one not in self._computing]:
            if self.traffic.has[host.name].issuperset(self._files(attempt)):
                self._computing.add(attempt)
                super()._start(host, attempt)

    def _end(self, host: Host, attempt: AttemptId) -> None:
        self.ended.setdefault(attempt.task, self.kernel.now)
        super()._end(host, attempt)

    def _files(self, attempt: AttemptId) -> tuple[str, ...]:
        return self._grid.tasks[attempt.task - 1].files

    def _run_time(self, attempt: AttemptId, since: float) -> float:
        return self.kernel.now - since if attempt in self._computing else 0.0

    def _files_of(self, host: Host) -> PeerReport:
        name, fluid, sizes = host.name, self.traffic.fluid, self._grid.sizes
        fetching = [
            Fetching(file, round(sizes[file]), round(sizes[file] - one.left))
            for (file, to), one in fluid.waiting.items()
            if to == name
        ]
        cached = tuple(CachedFile(file, round(sizes[file])) for file in sorted(self.traffic.has[name]))
        return PeerReport(_PORT, tuple(fetching), cached)


def _facts(speed: float) -> Facts:
    return Facts("linux", "x86_64", "3", "simulated", "PC", cpus=1, memory_bytes=2**33, slots=1, speed=speed)
