"""A round of tasks, assigned by annealing and by the genetic algorithm (Takahashi et al., section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopline_master.core.transfers.annealing import anneal
from loopline_master.core.transfers.assignment import Assessment, Assignment, AssignmentRequest, local_first
from loopline_master.core.transfers.genetic_search import evolve
from loopline_master.core.transfers.network import Network
from loopline_master.transfers.solver import solve
from loopline_simulator.papers.data_transfer.transfer_scenario import TransferScenario
from loopline_simulator.streams import stream

DISK_RATE = 200e6
"""Bytes per second that a host reads from its own disk."""


@dataclass(frozen=True, slots=True)
class AssignmentCase:
    """A round of tasks: one for each host and a quarter more, each of which needs ``scenario.wants`` files."""

    seed: int
    search: str
    scenario: TransferScenario
    plans: int  # that a search may make

    def request(self) -> AssignmentRequest:
        situation, chance = self.scenario.draw(self.seed), stream(self.seed, "tasks")
        hosts = tuple(node.name for node in situation.nodes if node.name.startswith("host"))
        files, count = sorted(situation.holders), min(self.scenario.wants, self.scenario.files)
        tasks = tuple(tuple(map(str, chance.choice(files, count, replace=False))) for _ in range(len(hosts) * 5 // 4))
        return AssignmentRequest(Network(situation.nodes), situation.holders, tasks, hosts, DISK_RATE)


@dataclass(frozen=True, slots=True)
class AssignmentAnswer:
    case: AssignmentCase
    value: float  # bytes per second
    plans: int  # made for it


def _at_random(assessment: Assessment, seed: int, plans: int) -> Assignment:
    return assessment.of(tuple(map(int, stream(seed, "order").permutation(assessment.request.places))))


def _local_first(assessment: Assessment, seed: int, plans: int) -> Assignment:
    return assessment.of(local_first(assessment))


SEARCHES: dict[str, Callable[[Assessment, int, int], Assignment]] = {
    "at-random": _at_random,
    "local-first": _local_first,
    "annealing": anneal,
    "genetic": evolve,
}
"""Ways to an assignment: (assessment, seed, plans that may be made)."""


def assign(case: AssignmentCase) -> AssignmentAnswer:
    assessment = Assessment(case.request(), solve)
    found = SEARCHES[case.search](assessment, case.seed, case.plans)
    return AssignmentAnswer(case, found.value, assessment.made)
