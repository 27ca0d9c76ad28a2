"""A situation of transfers from beginning to end, under one strategy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from loopline_master.core.wings.transfers.network import Network
from loopline_simulator.papers.data_transfer.fluid_network import FluidNetwork, Strategy, Watch
from loopline_simulator.papers.data_transfer.transfer_scenario import Situation


@dataclass(slots=True)
class FluidWorld:
    """A situation under one strategy. Times are in seconds."""

    situation: Situation
    strategy: Strategy
    patience_s: float = inf  # seconds without any rate, after which the strategy is asked again
    watch: Watch = lambda start, end, network, flows: None
    now: float = 0.0
    asked: int = 0  # how often the strategy was
    took: dict[tuple[str, str], float] = field(default_factory=dict)
    """Of each (file, host): time from the demand until the file was there."""

    def run(self) -> None:
        """Run until every demand is met. Raises RuntimeError if one can never be."""
        situation, nodes = self.situation, {node.name: node for node in self.situation.nodes}
        original, arrivals, changes = dict(nodes), list(situation.arrivals), list(situation.changes)
        fluid = FluidNetwork(
            Network(situation.nodes), situation.sizes, situation.holders, self.strategy, self.patience_s
        )
        fluid.watch = self.watch
        while arrivals or fluid.waiting:
            while arrivals and arrivals[0].at <= fluid.now:
                fluid.want(arrivals.pop(0).demand)
            while changes and changes[0].at <= fluid.now:
                change = changes.pop(0)
                node = original[change.node]
                nodes[change.node] = replace(node, up=node.up * change.factor, down=node.down * change.factor)
                fluid.network = Network(tuple(nodes.values()))
            fluid.plan()
            due = min(arrivals[0].at if arrivals else inf, changes[0].at if changes else inf, fluid.next_at)
            if due == inf:
                raise RuntimeError(f"{sorted(fluid.waiting)} can never be met")
            for one in fluid.flow_until(due):
                self.took[one.key] = fluid.now - one.since
        self.now, self.asked = fluid.now, fluid.asked
