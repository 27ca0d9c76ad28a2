"""The measured network: a tree of subnets, as transfers have shown it.

1. Two hosts are *apart* if a free flow between them was slow although both their links had room: it crosses a
   narrower link. They are *near* if the flow was almost as fast as their links, or swift.
2. Near hosts are joined into parts, the fastest pairs first, unless two hosts of the new part would be apart. This is
   Kruskal's algorithm, as in the choice of sources (``forest.py``).
3. The parts are assigned to switches, two parts to different switches if hosts of theirs are apart. This is a graph
   colouring. DSATUR finds the fewest switches if there are two, and few otherwise.
4. A host that is apart from all other parts is a slow host at the first switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from math import inf

from loopline_master.core.wings.transfers.flow_sample import NEAR, NO_CARDS, FlowSample, Pair, Switches, load_of

_PART = " #"
"""Separates the name of a switch from the number of a switch that was split off."""
_NARROW, _NARROW_BUSY = 0.58, 0.36
"""A flow below this share of its hosts' links crosses a narrower one, on an idle network and on a busy one. On a busy
one, the computers also have other work."""
_IDLE_WEIGHT, _ENOUGH, _ENOUGH_TO_DENY = 3, 2, 3
"""Weight of a flow on an idle network (others have 1 or 2); total that shows hosts apart, and total needed to
deny what a flow alone has shown."""
_TRAIN_ROOM = 2.0
"""A link is assumed to carry this multiple of a first piece's rate until several flows have crossed it."""
_SWIFT = 3.0
"""The links of both hosts carry at least this multiple of a swift flow's rate."""
_MOST_FLOWS = 16_000
"""Number of flows that are used, the newest; they take 0.1 s."""


@dataclass(frozen=True, slots=True)
class MeasuredNetwork:
    """The switch of each host, and the known capacities of links, in bytes per second each way."""

    switch_of: Switches
    hosts: Mapping[str, float]
    switches: Mapping[str, float]
    slow: frozenset[str] = frozenset()  # hosts slower than their cards and than others: not used to judge the others
    seen: frozenset[str] = frozenset()  # hosts with flows that show where they are


NOTHING_MEASURED = MeasuredNetwork({}, {}, {})


def measured_network(
    samples: Sequence[FlowSample], assumed: Switches, cards: Mapping[str, float] = NO_CARDS
) -> MeasuredNetwork:
    """Return the network that the samples show, given the assumed switch of each host and the speeds of cards.

    ``cards`` are in bytes per second. Other hosts are left out.
    """
    here = [sample for one in samples if (sample := one.among(assumed)).rates]
    return _Evidence(_newest(here), cards).network(assumed)


def _newest(samples: Sequence[FlowSample]) -> list[FlowSample]:
    """Return the newest samples within the limit of flows, at least one sample if there are any."""
    counts = accumulate(len(sample.rates) for sample in reversed(samples))
    kept = sum(count <= _MOST_FLOWS for count in counts)
    return list(samples[-max(1, kept) :])


class _Evidence:
    """Which pairs of hosts are near, and which apart; and the highest load of each link."""

    def __init__(self, samples: Sequence[FlowSample], cards: Mapping[str, float]) -> None:
        self._samples = [(one, sample.in_turn) for sample in samples for one in sample.together()]
        self._loads = [load_of(sample) for sample, _ in self._samples]
        self._capacity = self._capacities()
        fastest = max(self._capacity.values(), default=0.0)
        self._expected = {
            name: max(rate, min(fastest, cards.get(name, fastest))) for name, rate in self._capacity.items()
        }
        self._near: dict[bool, dict[Pair, float]] = {True: {}, False: {}}
        """Greatest share of their links that a flow between two hosts filled, alone (True) and beside other flows."""
        votes = self._votes = {True: Counter[Pair](), False: Counter[Pair]()}
        """Weight of the flows, alone and beside others, that show two hosts apart, less that of the opposite."""
        self._full: dict[str, set[str]] = {}  # hosts whose link was full, and the other ends of these flows
        number = 0
        for sample in samples:
            weight = self._weight(sample)
            fastest = max(sample.rates.values()) if sample.is_idle and sample.in_turn else inf
            for _ in sample.together():
                self._judge(number, weight, fastest)
                number += 1
        self._apart: dict[str, set[str]] = {}
        for one, other in votes[True].keys() | votes[False].keys():
            alone, beside = votes[True][one, other], votes[False][one, other]
            is_denied = alone < 0 and self._has_wide_link and beside >= _ENOUGH_TO_DENY
            is_revoked = beside <= -_ENOUGH_TO_DENY
            if is_denied or (alone >= 0 and not is_revoked and max(alone, beside) >= _ENOUGH):
                self._apart.setdefault(one, set()).add(other)
                self._apart.setdefault(other, set()).add(one)

    @property
    def _busiest(self) -> dict[str, float]:
        """Highest load of each host's link, without first pieces, which are measured less exactly."""
        busiest: dict[str, float] = {}
        for load, (_, is_train) in zip(self._loads, self._samples, strict=True):
            for (name, _), rate in load.items() if not is_train else ():
                busiest[name] = max(rate, busiest.get(name, 0.0))
        return busiest

    def _capacities(self) -> dict[str, float]:
        """Return the highest load of each host's link, or a higher rate that it had room for.

        First pieces on a busy network are left out: they may have waited at their receiver and then arrived at once.
        """
        capacity: dict[str, float] = {}
        for load, (sample, is_train) in zip(self._loads, self._samples, strict=True):
            for (name, _), rate in load.items():
                capacity[name] = max(rate if sample.is_idle or not is_train else 0.0, capacity.get(name, 0.0))
        for sample, _ in self._samples:
            for pair in sample.swift:
                for name in pair:
                    capacity[name] = max(capacity[name], _SWIFT * sample.rates[pair])
        return capacity

    def _share(self, pair: Pair, rate: float, fastest: float = inf) -> float:
        """Return the share of its hosts' links that a flow fills; ``fastest``: the most that can be expected."""
        return rate / max(1.0, min(fastest, *(self._expected[name] for name in pair)))

    def _weight(self, sample: FlowSample) -> int:
        """Return the weight of a sample's flows. On a busy network, a single first piece may be slow by chance."""
        slow = sum(self._share(pair, rate) < _NARROW_BUSY for pair, rate in sample.rates.items())
        return _IDLE_WEIGHT if sample.is_idle else 2 if sample.in_turn and slow > 1 else 1

    def _judge(self, number: int, weight: int, fastest: float) -> None:
        """Count the pairs of a sample that are near or apart, and note the hosts whose link is full."""
        (sample, is_train), load = self._samples[number], self._loads[number]
        is_alone, narrow = sample.is_idle and len(sample.rates) == 1, _NARROW if sample.is_idle else _NARROW_BUSY
        for pair in sample.free | sample.swift:
            ends, share = tuple(zip(pair, (True, False), strict=True)), self._share(pair, sample.rates[pair], fastest)
            if not all(self._expected[name] for name in pair):
                continue  # nothing is known of the capacity of their links
            names = pair if pair[0] < pair[1] else pair[::-1]
            if pair in sample.swift or share >= max(narrow, 0.5):
                near = self._near[is_alone]
                near[names] = max(share, near.get(names, 0.0))
                self._votes[is_alone][names] -= weight
            elif max(load[end] / min(fastest, self._expected[end[0]]) for end in ends) < narrow:
                self._votes[is_alone][names] += weight
            for end, other in zip(ends, pair[::-1], strict=True):
                if pair in sample.free and not is_train and load[end] >= NEAR * self._expected[end[0]]:
                    self._full.setdefault(end[0], set()).add(other)

    @cached_property
    def _has_wide_link(self) -> bool:
        """True if switches seem to be joined by a link as fast as the hosts' own.

        Then hosts at either end seem near as long as their flow is alone, but other flows deny at least as many of
        these pairs as they confirm. On a busy network, a single pair may be slow by chance.
        """
        beside = [self._votes[False][pair] for pair, votes in self._votes[True].items() if votes < 0]
        denied = sum(votes >= _ENOUGH_TO_DENY for votes in beside)
        is_probed = any(sample.is_idle and len(sample.rates) > 1 for sample, _ in self._samples)
        return denied >= (1 if is_probed else 2) and denied >= sum(votes < 0 for votes in beside)

    @property
    def _pairs_to_join(self) -> list[Pair]:
        """The near pairs, the fastest first."""
        pairs = self._near[False] if self._has_wide_link else self._near[True] | self._near[False]
        return sorted(pairs, key=lambda pair: (-pairs[pair], pair))

    def network(self, assumed: Switches) -> MeasuredNetwork:
        """Return the tree, and the capacities of those links that were full."""
        switch_of, slow = dict(assumed), set[str]()
        names: dict[str, list[str]] = {}
        for name in sorted(assumed):
            names.setdefault(assumed[name], []).append(name)
        for switch in sorted(names):
            groups = self._groups(names[switch])
            slow |= {group[0] for group in groups if len(group) == 1 and len(groups) > 1}
            for group in [group for group in groups if len(group) > 1][1:]:
                switch_of |= dict.fromkeys(group, _new_name(switch, switch_of.values()))
        hosts = {name: self._capacity[name] for name, others in self._full.items() if len(others) > 1 or name in slow}
        hosts |= {name: rate for name, rate in self._busiest.items() if name in slow}
        seen = {name for sample, _ in self._samples for pair in sample.free | sample.swift for name in pair}
        return MeasuredNetwork(switch_of, hosts, self._switches(switch_of), frozenset(slow), frozenset(seen))

    def _switches(self, switch_of: Switches) -> dict[str, float]:
        """Return the highest load of each switch's link that a slow flow has crossed.

        It is higher for links that few samples of flows have crossed, so that no plan limits the next flows.
        """
        loads: dict[bool, dict[str, float]] = {True: {}, False: {}}  # of first pieces; of flows
        crossed = Counter[str]()  # number of samples of flows
        for sample, is_train in self._samples:
            crossing = [pair for pair in sample.free if switch_of[pair[0]] != switch_of[pair[1]]]
            full = {switch_of[name] for pair in crossing if pair[1] in self._apart.get(pair[0], ()) for name in pair}
            for (switch, _), rate in load_of(sample, switch_of).items() if full else ():
                if switch in full:
                    loads[is_train][switch] = max(rate, loads[is_train].get(switch, 0.0))
            crossed.update(() if is_train else full)
        trains, flows = loads[True], loads[False]
        room = {switch: 1.0 if crossed[switch] >= _ENOUGH_TO_DENY else _TRAIN_ROOM for switch in trains}
        return {
            switch: max(trains.get(switch, 0.0) * room.get(switch, 1.0), flows.get(switch, 0.0))
            for switch in {**trains, **flows}
        }

    def _groups(self, names: Sequence[str]) -> list[list[str]]:
        """Divide the hosts of an assumed switch into few groups, so that no two hosts of a group are apart."""
        part = {name: {name} for name in names}  # the part of each host
        for one, other in [pair for pair in self._pairs_to_join if pair[0] in part and pair[1] in part]:
            small, large = sorted((part[one], part[other]), key=len)
            if small is not large and all(self._apart.get(name, _NONE).isdisjoint(large) for name in small):
                large |= small
                part |= dict.fromkeys(small, large)
        parts = [*{id(hosts): hosts for hosts in part.values()}.values()]
        place = {name: number for number, hosts in enumerate(parts) for name in hosts}
        apart = [
            {place[other] for name in hosts for other in self._apart.get(name, _NONE) if other in place}
            for hosts in parts
        ]
        groups: dict[int, list[str]] = {}
        for number, group in enumerate(_coloured(apart)):
            groups.setdefault(group, []).extend(parts[number])
        return sorted(map(sorted, groups.values()))


_NONE: frozenset[str] = frozenset()


def _coloured(apart: Sequence[set[int]]) -> list[int]:
    """Return a colour for each node of a graph, given its neighbours: DSATUR. Those without any cost nothing."""
    colours = [0] * len(apart)
    barred: dict[int, set[int]] = {node: set() for node, others in enumerate(apart) if others}
    left = {node: len(apart[node]) for node in barred}
    while barred:
        node = max(barred, key=lambda node: (len(barred[node]), left[node]))
        colours[node] = next(colour for colour in count() if colour not in barred[node])
        del barred[node]
        for other in apart[node] & barred.keys():
            barred[other].add(colours[node])
            left[other] -= 1
    return colours


def _new_name(switch: str, known: Iterable[str]) -> str:
    """Return the name of a switch that is split off another one."""
    base, taken = switch.partition(_PART)[0], set(known)
    return next(name for number in range(2, len(taken) + 3) if (name := f"{base}{_PART}{number}") not in taken)
