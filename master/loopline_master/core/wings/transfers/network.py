"""A network in the planner's view: a tree of switches, with the hosts as its leaves (Takahashi et al., section 3.2).

Each node except the root has one link, to its parent, with a capacity in each direction. Nodes are numbered as they
were given, and a transfer is limited by *directions*: of node ``i``, ``2 * i`` towards the parent and ``2 * i + 1``
away from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """A host or a switch, and its link to its parent. Capacities are in bytes per second."""

    name: str
    parent: str | None  # None: the root, a switch
    up: float = 0.0  # capacity of its link towards the parent ...
    down: float = 0.0  # ... and from it
    is_switch: bool = False
    is_guess: bool = False  # a host whose place is derived from its address alone


class Network:
    """A tree of nodes. Raises ValueError, with a sentence, if the nodes do not form such a tree.

    ``summed`` treats a link's two directions as one, of the capacity of ``up``: a transfer that uses either of them,
    or both, counts once. The paper prints its constraint so (section 3.3); full duplex links carry more.
    """

    def __init__(self, nodes: Sequence[NetworkNode], *, summed: bool = False) -> None:
        self.nodes = tuple(nodes)
        self.summed = summed
        self.number = {node.name: number for number, node in enumerate(nodes)}
        if len(self.number) < len(self.nodes):
            raise ValueError(f"two nodes are called {_first_repeated([node.name for node in nodes])!r}")
        self.parent = [self._parent(node) for node in nodes]
        self.depth = [-1] * len(nodes)
        for place in range(len(nodes)):
            self._measure_depth(place)
        if self.parent.count(-1) != 1:
            raise ValueError(f"a network has one root, not {self.parent.count(-1)}")
        self.limits = [limit for node in nodes for limit in (node.up, node.down)]
        self.ups = [2 * place for place in range(len(nodes))]
        self.downs = self.ups if summed else [up + 1 for up in self.ups]

    def use(self, hosts: Sequence[int]) -> dict[int, int]:
        """Return the number of times that a line of hosts, each passing on to the next, uses each direction."""
        used: dict[int, int] = {}
        for one, other in pairwise(hosts):
            for direction in self.way(one, other):
                used[direction] = used.get(direction, 0) + 1
        return dict.fromkeys(used, 1) if self.summed else used

    def way(self, start: int, end: int) -> list[int]:
        """Return the directions used from one node to another, in no particular order."""
        parent, depth, ups, downs, way = self.parent, self.depth, self.ups, self.downs, []
        while start != end:
            if depth[start] >= depth[end]:
                way.append(ups[start])
                start = parent[start]
            else:
                way.append(downs[end])
                end = parent[end]
        return way

    def _parent(self, node: NetworkNode) -> int:
        """Return the parent's number, -1 for the root."""
        if node.parent is None:
            if not node.is_switch:
                raise ValueError(f"the root, {node.name!r}, is not a switch")
            return -1
        if node.parent not in self.number:
            raise ValueError(f"{node.name!r} is linked to {node.parent!r}, which is not there")
        if not self.nodes[self.number[node.parent]].is_switch:
            raise ValueError(f"{node.name!r} is linked to {node.parent!r}, which is not a switch")
        if not (node.up >= 0 and node.down >= 0):
            raise ValueError(f"the link of {node.name!r} has a capacity below zero")
        return self.number[node.parent]

    def _measure_depth(self, place: int) -> None:
        way = []
        while place != -1 and self.depth[place] < 0:
            if place in way:
                raise ValueError(f"the links of {self.nodes[place].name!r} lead round in a circle")
            way.append(place)
            place = self.parent[place]
        depth = self.depth[place] if place != -1 else -1
        for below, node in enumerate(reversed(way), 1):
            self.depth[node] = depth + below


def _first_repeated(names: Sequence[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)
