"""Literal, slow versions of the planner's algorithms, written from the paper alone; and random trees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product

from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand, PlanRequest
from loopline_master.core.wings.transfers.programme import LinearProgramme

CAPACITIES = (1, 2, 3, 5, 10, 10, 20, 50)


def random_network(draw: random.Random, hosts: int, switches: int, *, symmetric: bool = True) -> Network:
    nodes = [NetworkNode("s0", None, is_switch=True)]
    for number in range(1, switches):
        nodes.append(_node(draw, f"s{number}", f"s{draw.randrange(number)}", True, symmetric))
    for number in range(hosts):
        nodes.append(_node(draw, f"h{number}", f"s{draw.randrange(switches)}", False, symmetric))
    draw.shuffle(nodes)
    return Network(nodes)


def _node(draw: random.Random, name: str, parent: str, is_switch: bool, symmetric: bool) -> NetworkNode:
    up = float(draw.choice(CAPACITIES))
    return NetworkNode(name, parent, up, up if symmetric else float(draw.choice(CAPACITIES)), is_switch)


def random_request(
    draw: random.Random,
    hosts: int,
    switches: int,
    files: int,
    wants: int = 1,
    copies: int = 3,
    *,
    symmetric: bool = True,
) -> PlanRequest:
    """Return a request where each host wants ``wants`` files, and each file has up to ``copies`` holders."""
    names = [f"h{number}" for number in range(hosts)]
    holders = {f"f{file}": tuple(draw.sample(names, draw.randint(1, copies))) for file in range(files)}
    demands = [
        Demand(file, name)
        for name in names
        for file in draw.sample(sorted(holders), wants)
        if name not in holders[file]
    ]
    return PlanRequest(random_network(draw, hosts, switches, symmetric=symmetric), holders, tuple(demands))


def steps(network: Network, start: str, end: str) -> list[tuple[str, str]]:
    """Return the links from one node to another, each as (from, to), found by walking the whole tree."""
    near: dict[str, set[str]] = {node.name: set() for node in network.nodes}
    for node in network.nodes:
        if node.parent is not None:
            near[node.name].add(node.parent)
            near[node.parent].add(node.name)

    def search(node: str, came_from: str | None) -> list[tuple[str, str]] | None:
        if node == end:
            return []
        for following in near[node] - {came_from}:
            rest = search(following, node)
            if rest is not None:
                return [(node, following), *rest]
        return None

    found = search(start, None)
    assert found is not None
    return found


def used(network: Network, lines: Sequence[Sequence[str]]) -> Counter[tuple[str, str]]:
    """Return how often the lines together use each link in each direction."""
    pairs = [pair for line in lines for pair in pairwise(line)]
    return Counter(step for one, other in pairs for step in steps(network, one, other))


def capacity(network: Network, step: tuple[str, str]) -> float:
    start, end = (network.nodes[network.number[name]] for name in step)
    return start.up if start.parent == end.name else end.down


def width(network: Network, step: tuple[str, str], holders: Sequence[str]) -> float:
    """Return how wide a link is for a pipeline: in its narrower direction, or outwards if its host is a source."""
    start, end = (network.nodes[network.number[name]] for name in step)
    link = start if start.parent == end.name else end
    return link.up if link.name in holders else min(link.up, link.down)


def widest(network: Network, holders: Sequence[str], receiver: str) -> float:
    """Return how wide the widest way from any holder to the receiver is."""
    return max(narrowest(network, holder, receiver, holders) for holder in holders)


def narrowest(network: Network, start: str, end: str, holders: Sequence[str]) -> float:
    return min(width(network, step, holders) for step in steps(network, start, end))


def best_bottleneck(network: Network, holders: Sequence[str], receivers: Sequence[str]) -> float:
    """Return the best common rate for all receivers, by trying all lines from all sources."""
    best = 0.0
    for choice in product(holders, repeat=len(receivers)):
        groups = [
            [name for name, source in zip(receivers, choice, strict=True) if source == holder] for holder in holders
        ]
        for orders in product(*(permutations(group) for group in groups)):
            lines = [(holder, *order) for holder, order in zip(holders, orders, strict=True)]
            often = used(network, lines)
            best = max(best, min(capacity(network, step) / count for step, count in often.items()))
    return best


def exact_optimum(programme: LinearProgramme) -> Fraction:
    """Return the greatest objective by the simplex method in fractions, with Bland's rule, which always ends."""
    count, rows = len(programme.weights), programme.constraints
    floors = [Fraction(floor) for floor in programme.floors]
    table = []
    for number, row in enumerate(rows):
        line = [Fraction(0)] * (count + len(rows) + 1)
        for variable, times in row.terms:
            line[variable] += times
        line[count + number] = Fraction(1)
        line[-1] = Fraction(row.limit) - sum(times * floors[variable] for variable, times in row.terms)
        table.append(line)
    gains = [*map(Fraction, programme.weights), *[Fraction(0)] * (len(rows) + 1)]
    while (entering := next((place for place, gain in enumerate(gains[:-1]) if gain > 0), None)) is not None:
        basis = [_basic(table, number, count) for number in range(len(rows))]
        rows_left = [(number, line) for number, line in enumerate(table) if line[entering] > 0]
        ratios = [(line[-1] / line[entering], basis[number], number) for number, line in rows_left]
        _pivot(table, gains, min(ratios)[2], entering)
    return -gains[-1] + sum(Fraction(weight) * floor for weight, floor in zip(programme.weights, floors, strict=True))


def _basic(table: list[list[Fraction]], row: int, count: int) -> int:
    """Return the variable that stands alone, with factor 1, in this row."""
    columns = range(len(table[0]) - 1)
    return next(
        place
        for place in columns
        if table[row][place] == 1 and all(not line[place] for number, line in enumerate(table) if number != row)
    )


def _pivot(table: list[list[Fraction]], gains: list[Fraction], row: int, column: int) -> None:
    factor = table[row][column]
    table[row] = [value / factor for value in table[row]]
    for line in (*(line for number, line in enumerate(table) if number != row), gains):
        if line[column]:
            times = line[column]
            line[:] = [value - times * pivot for value, pivot in zip(line, table[row], strict=True)]


def random_programmes(count: int, hosts: int = 12, files: int = 6) -> Iterator[LinearProgramme]:
    """Yield programmes as planning random requests makes them, some with floors."""
    from loopline_master.core.wings.transfers.transfer_planner import plan

    for seed in range(count):
        met: list[LinearProgramme] = []

        def solve(programme: LinearProgramme, met: list[LinearProgramme] = met) -> list[float]:
            met.append(programme)
            return list(programme.floors)

        draw = random.Random(seed)
        request = random_request(draw, hosts, 4, files, wants=2)
        overdue = tuple(Demand(each.file, each.host, overdue=draw.random() < 0.2) for each in request.demands)
        plan(PlanRequest(request.network, request.holders, overdue, least_rate=2.0), solve, rounds=0)
        yield met[0]
