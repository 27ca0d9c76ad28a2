"""A round of tasks, assigned to hosts by the searches (Takahashi et al., section 2) or as a live master does.

Then the planner brings each host the data of its task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from loopline_master.core.wings.transfers.data_delay import LOOK_AT, nearest
from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import Demand
from loopline_master.transfers.solver import solve
from loopline_simulator.papers.data_transfer.annealing import anneal
from loopline_simulator.papers.data_transfer.assignment import Assessment, Assignment, AssignmentRequest, local_first
from loopline_simulator.papers.data_transfer.fluid_world import FluidWorld
from loopline_simulator.papers.data_transfer.genetic_search import evolve
from loopline_simulator.papers.data_transfer.strategies import PATIENCE_S, Planned
from loopline_simulator.papers.data_transfer.transfer_scenario import MASTER, Arrival, TransferScenario
from loopline_simulator.streams import stream

DISK_RATE = 200e6
"""Bytes per second that a host reads from its own disk."""


@dataclass(frozen=True, slots=True)
class AssignmentCase:
    """A round of tasks, one for each host and ``more`` others; each needs ``scenario.wants`` files."""

    seed: int
    search: str
    scenario: TransferScenario
    plans: int  # that a search may make
    more: float = 0.25  # tasks that have to wait, as a share of the hosts

    def request(self) -> AssignmentRequest:
        situation, chance = self.scenario.draw(self.seed), stream(self.seed, "tasks")
        hosts = tuple(node.name for node in situation.nodes if node.name.startswith("host"))
        files, count = sorted(situation.holders), min(self.scenario.wants, self.scenario.files)
        count_of_tasks = int(len(hosts) * (1 + self.more))
        tasks = tuple(tuple(map(str, chance.choice(files, count, replace=False))) for _ in range(count_of_tasks))
        return AssignmentRequest(Network(situation.nodes), situation.holders, tasks, hosts, DISK_RATE)


@dataclass(frozen=True, slots=True)
class AssignmentAnswer:
    case: AssignmentCase
    value: float  # bytes per second
    plans: int  # made for it
    last_s: float  # until the last host has the files of its task
    mean_s: float  # of all hosts


def _at_random(assessment: Assessment, seed: int, plans: int) -> Assignment:
    return assessment.of(tuple(map(int, stream(seed, "order").permutation(assessment.request.places))))


def _local_first(assessment: Assessment, seed: int, plans: int) -> Assignment:
    return assessment.of(local_first(assessment))


def _live(assessment: Assessment, seed: int, plans: int) -> Assignment:
    """Return what a live master does, whose workers ask one after the other and make no plan for it."""
    request, network = assessment.request, assessment.request.network
    has = {file: [name for name in names if name != MASTER] for file, names in request.holders.items()}
    left, free, chosen = list(range(request.places)), set(request.hosts), []
    for host in request.hosts:
        here = (task for task in left if request.files(task) and not assessment.lacks(task, host))
        found = next(here, None)
        if found is None:
            found = nearest(
                left[:LOOK_AT],
                host,
                lambda task: [has[file] for file in request.files(task)],
                free,
                lambda name: network.nodes[network.number[name]].parent,
            )
        chosen.append(left[0] if found is None else found)
        left.remove(chosen[-1])
        free.discard(host)
    return assessment.of((*chosen, *left))


SEARCHING = ("annealing", "genetic")
"""Those that make as many plans as they may."""
SEARCHES: dict[str, Callable[[Assessment, int, int], Assignment]] = {
    "at-random": _at_random,
    "local-first": _local_first,
    "live": _live,
    "annealing": anneal,
    "genetic": evolve,
}
"""Ways to an assignment: (assessment, seed, plans that may be made)."""


def assign(case: AssignmentCase) -> AssignmentAnswer:
    assessment = Assessment(case.request(), solve)
    found = SEARCHES[case.search](assessment, case.seed, case.plans)
    made, waited = assessment.made, _waited(case, assessment, found)
    return AssignmentAnswer(case, found.value, made, max(waited), fmean(waited))


def _waited(case: AssignmentCase, assessment: Assessment, found: Assignment) -> list[float]:
    """Return how long each host waits until the planner has brought it what its task lacks, in seconds."""
    placed = zip(assessment.request.hosts, found.order, strict=False)
    lacking = {host: assessment.lacks(task, host) for host, task in placed}
    arrivals = tuple(Arrival(0.0, Demand(file, host)) for host, files in lacking.items() for file in files)
    world = FluidWorld(replace(case.scenario.draw(case.seed), arrivals=arrivals), Planned(solve), PATIENCE_S)
    world.run()
    return [max((world.took[file, host] for file in files), default=0.0) for host, files in lacking.items()]
