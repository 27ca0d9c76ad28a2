"""Lower bounds for every strategy, from the data that must cross each link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loopline_master.core.wings.transfers.network import Network
from loopline_simulator.papers.data_transfer.transfer_scenario import Situation

Cut = tuple[int, str, tuple[str, ...]]
"""A direction, a file that must cross it at least once, and the hosts that need it."""


def cuts(network: Network, holders: dict[str, tuple[str, ...]], demands: Iterable[tuple[str, str]]) -> Iterator[Cut]:
    """Yield the necessary crossings: a file goes down into a part without it, and up from one with all its copies.

    ``demands`` are (file, host).
    """
    wanting: dict[str, list[str]] = {}
    for file, host in demands:
        wanting.setdefault(file, []).append(host)
    for place, below in enumerate(_below(network)):
        for file, hosts in wanting.items():
            inside = tuple(host for host in hosts if host in below)
            outside = tuple(host for host in hosts if host not in below)
            if inside and below.isdisjoint(holders[file]):
                yield network.downs[place], file, inside
            if outside and below.issuperset(holders[file]):
                yield network.ups[place], file, outside


def _below(network: Network) -> Sequence[set[str]]:
    """Return the hosts below each node, itself included; the set of the root, which has no link, is empty."""
    found: list[set[str]] = [set() for _ in network.nodes]
    for place, node in enumerate(network.nodes):
        at = place
        while network.parent[at] != -1:
            if not node.is_switch:
                found[at].add(node.name)
            at = network.parent[at]
    return found


def least_makespan(situation: Situation) -> float:
    """Return a lower bound for the time when all demands are met, in seconds.

    A direction must carry, once, each file that is needed beyond it, and not before it is demanded there.
    """
    network = Network(situation.nodes)
    came = {(arrival.demand.file, arrival.demand.host): arrival.at for arrival in situation.arrivals}
    needed: dict[int, list[tuple[float, float]]] = {}
    for direction, file, hosts in cuts(network, situation.holders, came):
        first = min(came[file, host] for host in hosts)
        needed.setdefault(direction, []).append((first, situation.sizes[file]))
    best = 0.0
    for direction, files in needed.items():
        for start, _ in files:
            size = sum(size for came_at, size in files if came_at >= start)
            best = max(best, _carried_at(situation, network, direction, start, size))
    return best


def _carried_at(situation: Situation, network: Network, direction: int, start: float, size: float) -> float:
    """Return when a direction has carried ``size`` bytes since ``start``, given how its capacity changes."""
    name, full = network.nodes[direction // 2].name, network.limits[direction]
    now, capacity = start, full
    for change in situation.changes:
        if change.node == name:
            if change.at > now:
                if capacity * (change.at - now) >= size:
                    break
                size, now = size - capacity * (change.at - now), change.at
            capacity = full * change.factor
    return now + size / capacity


def most_throughput(
    network: Network, holders: dict[str, tuple[str, ...]], demands: Sequence[tuple[str, str]]
) -> float:
    """Return the throughput, in bytes per second at all receivers together, that no plan can exceed.

    It is that of a linear programme: each receiver has a rate, a file crosses a direction at the highest rate of
    those beyond it, and all files together keep to its capacity. Whether there are lines for such rates is left open.
    """
    import numpy as np
    from scipy.optimize import linprog  # type: ignore[import-untyped]
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    if not demands:
        return 0.0
    number = {demand: place for place, demand in enumerate(demands)}
    found = list(cuts(network, holders, demands))
    directions = {direction: row for row, direction in enumerate(sorted({direction for direction, _, _ in found}))}
    entries = [(directions[direction], len(number) + place, 1.0) for place, (direction, _, _) in enumerate(found)]
    limits = [network.limits[direction] for direction in directions]
    for place, (_, file, hosts) in enumerate(found):
        for host in hosts:
            entries += [(len(limits), number[file, host], 1.0), (len(limits), len(number) + place, -1.0)]
            limits.append(0.0)
    rows, columns, values = zip(*entries, strict=True)
    count = len(number) + len(found)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), count)).tocsr()
    gains = np.concatenate([-np.ones(len(number)), np.zeros(len(found))])
    return -float(linprog(gains, A_ub=matrix, b_ub=limits, method="highs").fun)
