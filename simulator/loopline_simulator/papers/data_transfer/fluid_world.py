"""Transfers as fluids: between two events every pipeline flows at one rate; each event asks the strategy again.

Events are new demands, completed files, changes of links, and demands that have waited too long. A receiver passes on
its pieces, beginning with those that the rest of its line lacks, so all hosts of a line progress at its rate until
they are done, regardless of the pieces that each had before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import Demand, Pipeline
from loopline_simulator.papers.data_transfer.transfer_scenario import Situation

_DONE_BYTES = 1.0
"""A remainder of less than this is a rounding error."""
_MOMENT_S = 1e-6
"""... and so little time."""


@dataclass(slots=True)
class Waiting:
    """A demand that is not met yet."""

    demand: Demand
    since: float
    left: float  # bytes
    without_rate: float = 0.0  # seconds

    def is_overdue(self, patience_s: float) -> bool:
        return self.without_rate + _MOMENT_S >= patience_s

    @property
    def key(self) -> tuple[str, str]:
        return self.demand.file, self.demand.host


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a strategy decides from."""

    network: Network
    holders: dict[str, tuple[str, ...]]
    waiting: Sequence[Waiting]
    running: tuple[Pipeline, ...]


Strategy = Callable[[Moment], tuple[Pipeline, ...]]
"""Return the pipelines and their rates until the next event."""
Watch = Callable[[float, float, Network, tuple[Pipeline, ...]], None]
"""Called with start, end, network and flows of each stretch of time."""


@dataclass(slots=True)
class FluidWorld:
    """A situation under one strategy. Times are in seconds."""

    situation: Situation
    strategy: Strategy
    patience_s: float = inf  # time without any rate after which a demand is an event
    watch: Watch = lambda start, end, network, flows: None
    now: float = 0.0
    asked: int = 0  # how often the strategy was
    took: dict[tuple[str, str], float] = field(default_factory=dict)
    """Of each (file, host): time from the demand until the file was there."""

    def run(self) -> None:
        """Run until every demand is met. Raises RuntimeError if one can never be."""
        nodes = {node.name: node for node in self.situation.nodes}
        original, network = dict(nodes), Network(tuple(nodes.values()))
        arrivals, changes = list(self.situation.arrivals), list(self.situation.changes)
        holders, waiting = dict(self.situation.holders), dict[tuple[str, str], Waiting]()
        flows: tuple[Pipeline, ...] = ()
        while arrivals or waiting:
            while arrivals and arrivals[0].at <= self.now:
                demand = arrivals.pop(0).demand
                one = Waiting(demand, self.now, self.situation.sizes[demand.file])
                waiting[one.key] = one
            while changes and changes[0].at <= self.now:
                change = changes.pop(0)
                node = original[change.node]
                nodes[change.node] = replace(node, up=node.up * change.factor, down=node.down * change.factor)
                network = Network(tuple(nodes.values()))
            flows = self.strategy(Moment(network, holders, tuple(waiting.values()), flows)) if waiting else ()
            self.asked += bool(waiting)
            due = (arrivals[0].at if arrivals else inf, changes[0].at if changes else inf)
            self._flow(min(due), waiting, flows, network)
            for one in [one for one in waiting.values() if one.left <= _DONE_BYTES]:
                del waiting[one.key]
                self.took[one.key] = self.now - one.since
                holders[one.demand.file] = (*holders[one.demand.file], one.demand.host)

    def _flow(
        self, due: float, waiting: dict[tuple[str, str], Waiting], flows: tuple[Pipeline, ...], network: Network
    ) -> None:
        """Let time pass until something happens, at the latest until ``due``."""
        rates = {(flow.file, host): flow.rate for flow in flows for host in flow.receivers}
        end = due
        for key, one in waiting.items():
            rate = rates.get(key, 0.0)
            if rate:
                end = min(end, self.now + one.left / rate)
            elif not one.is_overdue(self.patience_s):
                end = min(end, self.now + self.patience_s - one.without_rate)
        if end == inf:
            raise RuntimeError(f"{sorted(waiting)} can never be met")
        self.watch(self.now, end, network, flows)
        for key, one in waiting.items():
            rate = rates.get(key, 0.0)
            one.left -= rate * (end - self.now)
            one.without_rate += 0.0 if rate else end - self.now
        self.now = end
