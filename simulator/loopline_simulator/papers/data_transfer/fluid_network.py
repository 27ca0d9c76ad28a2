"""Files as fluids: between two events every pipeline flows at one rate; each event asks the strategy again.

Events are new demands, completed files, changes of links, and demands that have waited too long. A receiver passes on
its pieces, first those that the rest of its line lacks, so all hosts of a line progress at its rate until they are
done, regardless of their pieces before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.pipeline import Demand, Pipeline

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


class FluidNetwork:
    """Files that flow to the hosts that want them. Times are in seconds."""

    def __init__(
        self,
        network: Network,
        sizes: Mapping[str, float],
        holders: Mapping[str, tuple[str, ...]],
        strategy: Strategy,
        patience_s: float = inf,
    ) -> None:
        """Take the size of each file in bytes, and the patience of a demand: seconds without any rate."""
        self.network, self.holders, self.flows = network, dict(holders), tuple[Pipeline, ...]()
        self.waiting: dict[tuple[str, str], Waiting] = {}  # by file and host
        self.now = 0.0
        self.watch: Watch = lambda start, end, network, flows: None
        self.asked = 0  # how often the strategy was
        self._sizes, self._strategy, self._patience_s = sizes, strategy, patience_s

    def want(self, demand: Demand) -> None:
        """Add a demand for a file that the host does not have."""
        one = Waiting(demand, self.now, self._sizes[demand.file])
        self.waiting.setdefault(one.key, one)

    def plan(self) -> None:
        """Ask the strategy for the flows until the next event."""
        moment = Moment(self.network, self.holders, tuple(self.waiting.values()), self.flows)
        self.flows = self._strategy(moment) if self.waiting else ()
        self.asked += bool(self.waiting)

    @property
    def next_at(self) -> float:
        """Time when the next file is complete, or a demand becomes overdue; infinity if neither will happen."""
        rates, at = self._rates(), inf
        for key, one in self.waiting.items():
            if rate := rates.get(key, 0.0):
                at = min(at, self.now + one.left / rate)
            elif not one.is_overdue(self._patience_s):
                at = min(at, self.now + self._patience_s - one.without_rate)
        return at

    def flow_until(self, end: float) -> list[Waiting]:
        """Let time pass until ``end``, which is at most ``next_at``. Return the demands that are met by then."""
        self.watch(self.now, end, self.network, self.flows)
        rates = self._rates()
        for key, one in self.waiting.items():
            rate = rates.get(key, 0.0)
            one.left -= rate * (end - self.now)
            one.without_rate += 0.0 if rate else end - self.now
        self.now = end
        met = [one for one in self.waiting.values() if one.left <= _DONE_BYTES]
        for one in met:
            del self.waiting[one.key]
            self.holders[one.demand.file] = (*self.holders[one.demand.file], one.demand.host)
        return met

    def _rates(self) -> dict[tuple[str, str], float]:
        return {(flow.file, host): flow.rate for flow in self.flows for host in flow.receivers}
