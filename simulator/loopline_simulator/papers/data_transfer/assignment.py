"""Assignments of tasks to hosts, and their value: the throughput of arriving data (Takahashi et al., section 2).

Each free host gets at most one task in a round. A host that has all files of its task reads them from its own disk;
any other waits for the pipelines that a plan gives it. The sum over the hosts is the value. Where links are full, the
tasks that need data over them are the ones to move: the searches (``annealing.py``, ``genetic_search.py``) begin with
these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import Demand, Pipeline, PlanRequest, TransferPlan
from loopline_master.core.wings.transfers.programme import Solve
from loopline_master.core.wings.transfers.transfer_planner import plan

Order = tuple[int, ...]
"""Numbers of tasks: the first goes to the first host, and so on. Those beyond the last host wait."""

_FULL = 1 - 1e-6
"""Share of the capacity that makes a link count as full."""


@dataclass(frozen=True, slots=True)
class AssignmentRequest:
    """Input of an assignment: free hosts, waiting tasks, and the holders of each file.

    Tasks are named by their files. If there are fewer than hosts, tasks without files fill the places.
    """

    network: Network
    holders: Mapping[str, tuple[str, ...]]
    tasks: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    disk_rate: float  # bytes per second that a host reads from its own disk
    running: tuple[Pipeline, ...] = ()  # transfers under way, which go on
    demands: tuple[Demand, ...] = ()  # ... and the hosts that need them

    @property
    def places(self) -> int:
        return max(len(self.tasks), len(self.hosts))

    def files(self, task: int) -> tuple[str, ...]:
        return self.tasks[task] if task < len(self.tasks) else ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """An order with its value in bytes per second, its plan, and the places of hosts that wait for full links."""

    order: Order
    value: float
    plan: TransferPlan
    moved_first: tuple[int, ...]


class Assessment:
    """Values of orders under one solver; each order is planned once."""

    def __init__(self, request: AssignmentRequest, solve: Solve) -> None:
        self.request = request
        self.made = 0  # plans made: the cost of a search
        self._solve = solve
        self._known: dict[Order, Assignment] = {}
        self._has = {file: frozenset(names) for file, names in request.holders.items()}

    def of(self, order: Order) -> Assignment:
        """Return the assignment that the order stands for."""
        if (known := self._known.get(order)) is None:
            known = self._known[order] = self._assess(order)
            self.made += 1
        return known

    def lacks(self, task: int, host: str) -> list[str]:
        """Return the files of a task that a host does not have."""
        return [file for file in self.request.files(task) if host not in self._has.get(file, ())]

    def _assess(self, order: Order) -> Assignment:
        request, local = self.request, 0
        demands = list(request.demands)
        for host, task in zip(request.hosts, order, strict=False):
            lacking = self.lacks(task, host)
            local += bool(request.files(task)) and not lacking
            demands += [Demand(file, host) for file in lacking]
        found = plan(
            PlanRequest(request.network, request.holders, tuple(dict.fromkeys(demands)), request.running),
            self._solve,
            rounds=1,
        )
        return Assignment(order, found.objective + local * request.disk_rate, found, self._waiting(found))

    def _waiting(self, found: TransferPlan) -> tuple[int, ...]:
        """Return the indices of hosts whose pipelines use a full direction; of all fetching hosts if none is full."""
        network = self.request.network
        uses = [network.use([network.number[name] for name in each.hosts]) for each in found.pipelines]
        load: dict[int, float] = {}
        for use, pipeline in zip(uses, found.pipelines, strict=True):
            for direction, count in use.items():
                load[direction] = load.get(direction, 0.0) + count * pipeline.rate
        full = {direction for direction, rate in load.items() if rate >= _FULL * network.limits[direction]}
        waiting = {
            name
            for use, pipeline in zip(uses, found.pipelines, strict=True)
            if not full.isdisjoint(use)
            for name in pipeline.receivers
        }
        return tuple(place for place, host in enumerate(self.request.hosts) if host in waiting)


def local_first(assessment: Assessment) -> Order:
    """Return an order: tasks go to hosts that have their files, then to neighbours of such, then on."""
    request, network = assessment.request, assessment.request.network
    free, waiting = dict.fromkeys(request.hosts), dict.fromkeys(range(request.places))
    chosen: dict[str, int] = {}
    near: Sequence[Mapping[str, frozenset[int]]] = ({}, _switches(request))
    for switches in near:
        for task in list(waiting):
            for host in list(free):
                lacking = assessment.lacks(task, host)
                at = network.parent[network.number[host]]
                if request.files(task) and all(at in switches.get(file, ()) for file in lacking):
                    chosen[host] = task
                    del free[host], waiting[task]
                    break
    rest = iter(waiting)
    chosen |= {host: next(rest) for host in free}
    return (*(chosen[host] for host in request.hosts), *rest)


def _switches(request: AssignmentRequest) -> dict[str, frozenset[int]]:
    """Return the switches below which each file can be found."""
    network = request.network
    return {
        file: frozenset(network.parent[network.number[name]] for name in names)
        for file, names in request.holders.items()
    }
