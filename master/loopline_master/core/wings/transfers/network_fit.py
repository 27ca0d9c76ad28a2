"""The fit of a choice of switches to samples of flows, and the capacities of links that follow from it.

If a free flow is slow while no known link is full, there is an unknown link, or one of its hosts is slower than the
others. A host is only considered slow if it was slow with two others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loopline_master.core.wings.transfers.flow_sample import (
    NEAR,
    NO_CARDS,
    DoubtfulFlow,
    FlowRecord,
    FlowSample,
    Pair,
    Switches,
    Way,
)

_COST_OF_A_SWITCH = 1.0
"""Number of otherwise unexplained slow flows that show another switch ..."""
_COST_OF_A_SLOW_HOST, _COST_OF_A_SLOW_PAIR = 0.3, 0.5
"""... or a host that is slower than its card and others; more if it was slow with only one other host."""
_COST_OF_A_CONTRADICTION = 0.5
"""Cost of a swift flow over a link that was full."""
_LATELY_S = 30.0
"""Seconds that a link's lower rate than before is assumed to last."""

_Link = tuple[str, bool]
"""A node, and True for its link to the switch above: a host and a switch may have the same name."""


def cost(samples: Sequence[FlowSample], switch_of: Switches, cards: Mapping[str, float] = NO_CARDS) -> float:
    """Return the cost of these switches: of their explanation of the samples, and of the unexplained part."""
    return NetworkFit(FlowRecord(samples, cards), switch_of).cost()


class NetworkFit:
    """A choice of switches compared with the record: the loads of their links, and the unexplained part."""

    def __init__(self, record: FlowRecord, switch_of: Switches) -> None:
        self._record, self._switch_of = record, switch_of
        self._loads = [self._load(sample) for sample in record.samples]  # of the switches' links
        self._capacity: dict[str, float] = {}
        for load in self._loads:
            for (name, _), rate in load.items():
                if rate > self._capacity.get(name, 0.0):
                    self._capacity[name] = rate

    def cost(self) -> float:
        """Return the cost of the switches, of hosts considered slow, and of the unexplained part."""
        needed = _COST_OF_A_SWITCH * len(set(self._switch_of.values()))
        return needed + self._explained()[1] + _COST_OF_A_CONTRADICTION * self._contradictions()

    def slow(self) -> Iterator[DoubtfulFlow]:
        """Yield free flows that no link explains, with the fullness of the fullest link on their way."""
        switch_of, capacity = self._switch_of, self._capacity
        for flow in self._record.doubtful:
            one, other = switch_of[flow.pair[0]], switch_of[flow.pair[1]]
            if one == other:
                yield flow
                continue
            load = self._loads[flow.sample]
            fullness = max(flow.fullness, load[one, True] / capacity[one], load[other, False] / capacity[other])
            if fullness < NEAR:
                yield DoubtfulFlow(flow.sample, flow.pair, fullness, flow.full)

    def blamed(self) -> set[str]:
        """Return hosts whose links must be slow to explain free flows."""
        return self._explained()[0]

    def known(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the capacities that flows have shown: of hosts' links, and of switches'."""
        shown, capacity = self._shown(), self._all_capacities() | self._lately()
        hosts, switches = (
            {name: capacity[name, is_switch] for name in names if (name, is_switch) in shown}
            for names, is_switch in ((self._switch_of, False), (set(self._switch_of.values()), True))
        )
        return hosts, switches

    def _load(self, sample: FlowSample) -> dict[Way, float]:
        load: dict[Way, float] = {}
        switch_of = self._switch_of
        for (source, receiver), rate in sample.rates.items():
            one, other = switch_of[source], switch_of[receiver]
            if one != other:
                load[one, True] = load.get((one, True), 0.0) + rate
                load[other, False] = load.get((other, False), 0.0) + rate
        return load

    def _explained(self) -> tuple[set[str], float]:
        """Return hosts whose links must be slow to explain free flows, and the cost of these and of the rest."""
        left, blamed, spent = list(self.slow()), set[str](), 0.0
        while True:
            gains: dict[str, float] = {}
            pairs: dict[str, set[Pair]] = {}
            for flow in left:
                for name in flow.full:
                    gains[name] = gains.get(name, 0.0) + NEAR - flow.fullness
                    pairs.setdefault(name, set()).add(flow.pair)
            for name, found in pairs.items():
                gains[name] -= _COST_OF_A_SLOW_HOST if len(found) > 1 else _COST_OF_A_SLOW_PAIR
            name = max(gains, key=lambda one: (gains[one], one), default="")
            if gains.get(name, 0.0) <= 0:
                return blamed, spent + sum(NEAR - flow.fullness for flow in left)
            blamed.add(name)
            spent += _COST_OF_A_SLOW_HOST if len(pairs[name]) > 1 else _COST_OF_A_SLOW_PAIR
            left = [flow for flow in left if name not in flow.full]

    def _contradictions(self) -> int:
        """Return the number of swift flows over links that were full, by the free flows beside them."""
        found = 0
        for sample, load in zip(self._record.samples, self._loads, strict=True):
            if sample.swift and load:
                crossed = {way for pair in sample.free for way in self._crossed(pair)}
                full = {way for way in crossed if load[way] >= NEAR * self._capacity[way[0]]}
                found += sum(not full.isdisjoint(self._crossed(pair)) for pair in sample.swift) if full else 0
        return found

    def _crossed(self, pair: Pair) -> tuple[Way, ...]:
        """Return the links of switches that a flow uses."""
        one, other = self._switch_of[pair[0]], self._switch_of[pair[1]]
        return () if one == other else ((one, True), (other, False))

    def _shown(self) -> set[_Link]:
        """Return the links that limited free flows; a host's link only if it did with at least two others."""
        others: dict[_Link, set[str]] = {}
        blamed, capacity, expected = self.blamed(), self._all_capacities(), self._record.expected
        for number, sample in enumerate(self._record.samples):
            for pair in sample.free:
                for link, is_up, load in self._way(number, pair):
                    is_reason = link[1] or link[0] in blamed or capacity[link] >= NEAR * expected[link[0]]
                    if is_reason and load >= NEAR * capacity[link]:
                        others.setdefault(link, set()).add(pair[1] if is_up else pair[0])
        return {link for link, names in others.items() if link[1] or len(names) > 1}

    def _lately(self) -> dict[_Link, float]:
        """Return the capacity of links that carry less than before: the fullest on the way of each slow flow."""
        samples, capacity = self._record.samples, self._all_capacities()
        newest = max((sample.at for sample in samples), default=0.0)
        found: dict[_Link, float] = {}
        for number, sample in enumerate(samples):
            if sample.at > newest - _LATELY_S:
                fullest = [
                    max(self._way(number, pair), key=lambda way: (way[2] / capacity[way[0]], way[0][1]))
                    for pair in sample.free
                ]
                full = {link: load for link, _, load in fullest if load < NEAR * capacity[link]}
                found = {link: rate for link, rate in found.items() if self._most(number, link) <= rate} | full
        return found

    def _all_capacities(self) -> dict[_Link, float]:
        hosts = {(name, False): rate for name, rate in self._record.capacity.items()}
        return hosts | {(name, True): rate for name, rate in self._capacity.items()}

    def _way(self, number: int, pair: Pair) -> list[tuple[_Link, bool, float]]:
        """Return the links on a flow's way, True for upwards, and their load by all flows of its sample."""
        load = self._record.loads[number]
        way = [((name, False), is_up, load[name, is_up]) for name, is_up in zip(pair, (True, False), strict=True)]
        crossed = self._crossed(pair)
        return way + [((name, True), is_up, self._loads[number][name, is_up]) for name, is_up in crossed]

    def _most(self, number: int, link: _Link) -> float:
        """Return a link's load in a sample, in the fuller of its directions."""
        load = self._loads[number] if link[1] else self._record.loads[number]
        return max(load.get((link[0], is_up), 0.0) for is_up in (True, False))
