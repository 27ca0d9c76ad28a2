"""Ways to bring files to hosts: the master's planner, and strategies that do not know the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.pipeline import Demand, Pipeline, PlanRequest
from loopline_master.core.wings.transfers.programme import Solve, programme
from loopline_master.core.wings.transfers.transfer_planner import plan
from loopline_master.transfers.solver import solve
from loopline_simulator.papers.data_transfer.fluid_network import Moment, Strategy, Waiting
from loopline_simulator.papers.data_transfer.transfer_scenario import MASTER
from loopline_simulator.streams import Generator, stream

PATIENCE_S = 10.0
"""A demand without any rate for this long stays overdue: the planner guarantees it a rate."""
LEAST_RATE = 1e6
"""... which is this, in bytes per second."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Lines by the master's planner, at the rates of ``solve``; without re-planning if ``rounds`` is 0."""

    solve: Solve
    rounds: int = 1

    def __call__(self, moment: Moment) -> tuple[Pipeline, ...]:
        demands = tuple(
            Demand(one.demand.file, one.demand.host, overdue=one.is_overdue(PATIENCE_S)) for one in moment.waiting
        )
        request = PlanRequest(moment.network, moment.holders, demands, moment.running, LEAST_RATE)
        return plan(request, self.solve, self.rounds).pipelines


class Chosen:
    """Lines that are chosen when a demand comes and then kept, at the rates that TCP would share out."""

    def __init__(self, lines: Callable[[Moment, Sequence[Waiting]], Iterable[tuple[str, ...]]]) -> None:
        self._lines = lines
        self._kept: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, moment: Moment) -> tuple[Pipeline, ...]:
        wanting = {one.key for one in moment.waiting}
        self._kept = [
            (file, (line[0], *(host for host in line[1:] if (file, host) in wanting))) for file, line in self._kept
        ]
        self._kept = [(file, line) for file, line in self._kept if len(line) > 1]
        served = {(file, host) for file, line in self._kept for host in line[1:]}
        for file in sorted(moment.holders):
            new = [one for one in moment.waiting if one.demand.file == file and one.key not in served]
            self._kept += [(file, line) for line in self._lines(moment, new)] if new else []
        numbers = [[moment.network.number[host] for host in line] for _, line in self._kept]
        uses = [moment.network.use(line) for line in numbers]
        rates = fill(programme(moment.network, uses, [len(line) - 1 for line in numbers], [0.0] * len(uses)))
        return tuple(Pipeline(file, line, rate) for (file, line), rate in zip(self._kept, rates, strict=True))


def _from_master(moment: Moment, new: Sequence[Waiting]) -> Iterable[tuple[str, ...]]:
    return ((MASTER, one.demand.host) for one in new)


def _from_random_peers(chance: Generator) -> Chosen:
    def lines(moment: Moment, new: Sequence[Waiting]) -> Iterable[tuple[str, ...]]:
        for one in new:
            yield str(chance.choice(moment.holders[one.demand.file])), one.demand.host

    return Chosen(lines)


def _blind_pipelines(chance: Generator) -> Chosen:
    """Return the planner's pipelines without the network: any source for each receiver, and lines in any order."""

    def lines(moment: Moment, new: Sequence[Waiting]) -> Iterable[tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for one in new:
            groups.setdefault(str(chance.choice(moment.holders[one.demand.file])), []).append(one.demand.host)
        for source, hosts in groups.items():
            yield (source, *map(str, chance.permutation(hosts)))

    return Chosen(lines)


STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "planned": lambda seed: Planned(solve),
    "planned-fair": lambda seed: Planned(fill),
    "planned-once": lambda seed: Planned(solve, rounds=0),
    "blind": lambda seed: _blind_pipelines(stream(seed, "blind")),
    "random-peers": lambda seed: _from_random_peers(stream(seed, "peers")),
    "master-only": lambda seed: Chosen(_from_master),
}
"""By name: a fresh strategy for a run of a seed."""
