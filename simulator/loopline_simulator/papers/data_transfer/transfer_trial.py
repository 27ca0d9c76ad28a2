"""A run of one strategy in one situation, and everything that it depends on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from statistics import fmean

from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import Pipeline
from loopline_simulator.papers.data_transfer.bounds import least_makespan, most_throughput
from loopline_simulator.papers.data_transfer.fluid_world import FluidWorld
from loopline_simulator.papers.data_transfer.strategies import PATIENCE_S, STRATEGIES, Planned
from loopline_simulator.papers.data_transfer.transfer_scenario import TransferScenario


@dataclass(frozen=True, slots=True)
class TransferCase:
    """Everything that a run depends on: the same case gives the same figures on every machine."""

    seed: int
    strategy: str
    scenario: TransferScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferMeasures:
    """Figures of one run, with the bounds of its situation."""

    makespan_s: float  # until the last file is there
    mean_s: float  # from a demand until its file is there
    longest_s: float
    uplink_gb: float  # carried between switches, both directions together
    master_gb: float  # sent by the master
    first_mbs: float  # throughput at all receivers together, at the beginning
    least_makespan_s: float  # no strategy can be faster ...
    most_mbs: float  # ... or have more throughput at the beginning


@dataclass(frozen=True, slots=True)
class TransferAnswer:
    case: TransferCase
    measures: TransferMeasures
    events: int  # how often the strategy was asked
    took_s: float  # of computing; differs from run to run


@dataclass(slots=True)
class Meter:
    """Bytes that each direction of each link carried, and the flows of each stretch of time."""

    carried: dict[tuple[str, str], float] = field(default_factory=dict)
    """By node and ``up`` or ``down``, in bytes."""
    stretches: list[tuple[float, float, Network, tuple[Pipeline, ...]]] = field(default_factory=list)

    def __call__(self, start: float, end: float, network: Network, flows: tuple[Pipeline, ...]) -> None:
        self.stretches.append((start, end, network, flows))
        for direction, rate in rates(network, flows).items():
            way = network.nodes[direction // 2].name, ("up", "down")[direction % 2]
            self.carried[way] = self.carried.get(way, 0.0) + rate * (end - start)


def rates(network: Network, flows: tuple[Pipeline, ...]) -> dict[int, float]:
    """Return the bytes per second in each direction that is in use."""
    found: dict[int, float] = {}
    for flow in flows:
        for direction, count in network.use([network.number[host] for host in flow.hosts]).items():
            found[direction] = found.get(direction, 0.0) + count * flow.rate
    return found


def observe(case: TransferCase) -> tuple[FluidWorld, Meter]:
    """Run the case, and return the world at its end and the traffic of its links."""
    strategy, meter = STRATEGIES[case.strategy](case.seed), Meter()
    patience_s = PATIENCE_S if isinstance(strategy, Planned) else inf
    world = FluidWorld(case.scenario.draw(case.seed), strategy, patience_s, meter)
    world.run()
    return world, meter


def run(case: TransferCase) -> TransferAnswer:
    began = time.process_time()
    world, meter = observe(case)
    took_s = time.process_time() - began
    situation, waited = world.situation, list(world.took.values())
    switches = {node.name for node in situation.nodes if node.is_switch}
    wanted = [(arrival.demand.file, arrival.demand.host) for arrival in situation.arrivals if not arrival.at]
    measures = TransferMeasures(
        makespan_s=world.now,
        mean_s=fmean(waited),
        longest_s=max(waited),
        uplink_gb=sum(size for (node, _), size in meter.carried.items() if node in switches) / 1e9,
        master_gb=meter.carried.get(("master", "up"), 0.0) / 1e9,
        first_mbs=_throughput(meter) / 1e6,
        least_makespan_s=least_makespan(situation),
        most_mbs=most_throughput(Network(situation.nodes), situation.holders, wanted) / 1e6,
    )
    return TransferAnswer(case, measures, world.asked, took_s)


def _throughput(meter: Meter) -> float:
    """Return the bytes per second at all receivers together, at the beginning."""
    return sum(flow.rate * len(flow.receivers) for flow in meter.stretches[0][3])
