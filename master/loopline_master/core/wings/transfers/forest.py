"""Source of each receiver: the paper's variant of Kruskal's algorithm, corrected (section 3.2).

Links are taken from the widest to the narrowest, and grow trees round the hosts that hold the file. A link is left
out if it would join two trees that both have a source. Hosts that neither hold nor want the file are left out: only
switches relay. So each receiver ends up in the tree of one source, by the widest way to any source.

The hosts of a tree, in depth-first order from its source, are a pipeline: the way from each to the next uses no link
twice in one direction. (In breadth-first order, as the paper has it, it may.)

The paper's pseudo-code is corrected in two places. A component that joins one with a source is attached as a whole,
not only the end of the link; and only idle *hosts* are excluded, since without switches no link would be adopted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from loopline_master.core.wings.transfers.network import Network


def pipelines(
    network: Network, free: Sequence[float], holders: Collection[int], receivers: Collection[int]
) -> list[tuple[int, ...]]:
    """Return lines of hosts, each beginning with its source, so that each receiver is in one.

    ``free`` is the remaining capacity of each direction of the network, in bytes per second. Links without any
    remaining come last, and links without any capacity are cut. A receiver that no source can reach is left out.
    Holders and receivers have no host in common.
    """
    forest = _Forest(network, holders, receivers)
    for place in _widest_first(network, free, holders, receivers):
        if not forest.waiting:
            break
        forest.join(place, network.parent[place])
    lines = (_depth_first(forest.links, source, receivers) for source in sorted(holders))
    return [line for line in lines if len(line) > 1]


class _Forest:
    """Components by union-find, each with the number of its receivers and whether it has a source."""

    def __init__(self, network: Network, holders: Collection[int], receivers: Collection[int]) -> None:
        self.links: dict[int, list[int]] = {}  # adopted links, by node: their other ends
        self.waiting = len(receivers)  # receivers in components without a source
        self._root = list(range(len(network.nodes)))
        self._has_source = set(holders)
        self._receivers = dict.fromkeys(receivers, 1)

    def join(self, one: int, other: int) -> None:
        """Adopt the link between two nodes, unless both are in trees with a source."""
        left, right = self._find(one), self._find(other)
        if left in self._has_source:
            left, right = right, left
        if left in self._has_source:
            return
        moved = self._receivers.pop(left, 0)
        if right in self._has_source:
            self.waiting -= moved
        self._root[left] = right
        self._receivers[right] = self._receivers.get(right, 0) + moved
        self.links.setdefault(one, []).append(other)
        self.links.setdefault(other, []).append(one)

    def _find(self, node: int) -> int:
        root = self._root
        while root[node] != node:
            root[node] = node = root[root[node]]
        return node


def _widest_first(
    network: Network, free: Sequence[float], holders: Collection[int], receivers: Collection[int]
) -> list[int]:
    """Return the nodes whose links may be used, those with the widest links first.

    A pipeline uses a link in both directions, so its width is that of the narrower; but nothing flows to a source. Of
    equally good sources, the one whose number is nearest to a receiver's comes first: neighbours in name are mostly
    neighbours on the wire, even if the network does not record it.
    """
    ups, downs, limits, found = network.ups, network.downs, network.limits, []
    in_order = sorted(receivers)
    for place in _above(network, (*holders, *receivers)):
        up, down, apart = ups[place], downs[place], 0
        if place in holders:
            down, apart = up, _apart(in_order, place)
        if limits[up] > 0 and limits[down] > 0:
            found.append((-min(free[up], free[down]), -min(limits[up], limits[down]), apart, place))
    return [place for *_, place in sorted(found)]


def _apart(in_order: Sequence[int], place: int) -> int:
    """Return the distance of the nearest of these numbers from a place."""
    at = bisect_left(in_order, place)
    return min((abs(number - place) for number in in_order[max(0, at - 1) : at + 1]), default=0)


def _above(network: Network, hosts: Iterable[int]) -> set[int]:
    """Return the hosts and all switches above them except the root: only the links of these nodes can be of use."""
    found: set[int] = set()
    for host in hosts:
        place = host
        while network.parent[place] != -1 and place not in found:
            found.add(place)
            place = network.parent[place]
    return found


def _depth_first(links: dict[int, list[int]], source: int, receivers: Collection[int]) -> tuple[int, ...]:
    """Return the source and the receivers of its tree, in the order of a walk along the links."""
    line, stack = [source], [(source, -1)]
    while stack:
        node, came_from = stack.pop()
        if node in receivers:
            line.append(node)
        stack += [(next_one, node) for next_one in sorted(links.get(node, ()), reverse=True) if next_one != came_from]
    return tuple(line)
