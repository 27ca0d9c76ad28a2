"""A run of a scenario, and its measures. Cases travel to other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from loopline_simulator.papers.global_computing.programs import Program
from loopline_simulator.papers.global_computing.queueing_world import QueueingWorld, Request
from loopline_simulator.papers.global_computing.scenario import KB, QueueingScenario


@dataclass(frozen=True, slots=True)
class QueueingCase:
    """Everything that a run depends on. The same case gives the same answer on every machine and in every process."""

    seed: int
    scheduler: str
    scenario: QueueingScenario
    table: int | None = None  # of the paper
    reading: str = ""


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput and performance of one client."""

    throughput_kb_s: float
    performance_mflops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueingMeasures:
    """Means over the requests that counted.

    Communication includes the wait for the client's own earlier data, and computing the wait for the server.
    """

    communication_s: float
    computing_s: float
    total_s: float
    utilisation: tuple[float, ...]  # by server, all its jobs
    chosen: tuple[float, ...]  # by server, share of the requests
    clients: tuple[Rates | None, ...]  # None: none of its requests counted


@dataclass(frozen=True, slots=True)
class QueueingAnswer:
    case: QueueingCase
    measures: QueueingMeasures
    events: int


def run(case: QueueingCase) -> QueueingAnswer:
    world = QueueingWorld(case.scenario, case.scheduler, case.seed)
    world.run()
    return QueueingAnswer(case, _measures(world, case.scenario), world.events)


def _measures(world: QueueingWorld, scenario: QueueingScenario) -> QueueingMeasures:
    requests = world.ended
    computing, total = fmean(r.computed - r.arrived for r in requests), fmean(r.ended - r.issued for r in requests)
    return QueueingMeasures(
        communication_s=total - computing,
        computing_s=computing,
        total_s=total,
        utilisation=tuple(server.busy_s / world.kernel.now for server in world.servers),
        chosen=tuple(fmean(r.server == number for r in requests) for number in range(len(world.servers))),
        clients=tuple(
            _rates([r for r in requests if r.client == number], scenario.program_of(client))
            for number, client in enumerate(scenario.clients)
        ),
    )


def _rates(requests: Sequence[Request], program: Program) -> Rates | None:
    if not requests:
        return None
    total = fmean(request.ended - request.issued for request in requests)
    communication = total - fmean(request.computed - request.arrived for request in requests)
    sent = (program.out_bytes + program.back_bytes) / KB
    return Rates(sent / communication, program.credited_mop / total)
