"""The network as transfers have shown it: what links carry, and which hosts share one to the others.

A *free* flow is one that nothing but the network holds back. So some link on its way is full while it runs. A link's
capacity is the most that it was ever seen to carry, in either direction. If a free flow is slow while no link that we
know of is full, there is a link that we do not know: the hosts of a switch are parted into two switches so that the
links to them explain it. What is sought are the fewest switches that explain the most; ``cost`` says how well any
choice does, and the tests hold the search against all choices.

What is found is a tree of two levels. A host is only said to be slow if it was so with two others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[str, str]
"""Source and receiver of a flow."""
Switches = Mapping[str, str]
"""The switch of each host."""
_Link = tuple[str, bool]
"""A node and whether its link to the switch above is meant: of a host's name and a switch's, which may be alike."""
_Way = tuple[_Link, bool]
"""A direction of a link; True is up."""

NO_CARDS: Mapping[str, float] = {}
NEAR = 0.8
"""A link that carries this share of its capacity counts as full: rates are measured, and share links unevenly."""
_COST_OF_A_SWITCH = 1.0
"""So many free flows, slow for no other reason, show that there is another switch ..."""
_COST_OF_A_SLOW_HOST, _COST_OF_A_SLOW_PAIR = 0.3, 0.5
"""... or, so many, that a host is slower than its card and others are; more if it was so with one other alone."""
_SWIFT = 3.0
"""So many times the rate of a swift flow, at least, do the links of both hosts carry."""
_COST_OF_A_CONTRADICTION = 0.5
"""A swift flow over a link that was full."""
_LATELY_S = 30.0
"""For so long a link is taken to carry less than before, if it does."""
_PART = " #"
"""Between the name of a switch and the number of one that was parted from it."""
_MOST_TURNED = 2
_MOST_CLIMBS, _MOST_PASSES = 4, 3
"""Bounds of the search: so many ways to part a switch are bettered, and each host is moved so often at most."""


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Flows that ran together at one time, with their rates in bytes per second."""

    at: float
    rates: Mapping[Pair, float]
    free: frozenset[Pair]  # of these: the network alone decided their rates
    swift: frozenset[Pair] = frozenset()  # their sources alone did: the network had room for far more


@dataclass(frozen=True, slots=True)
class MeasuredNetwork:
    """The switch of each host, and the capacities that are known of links, in bytes per second each way."""

    switch_of: Switches
    hosts: Mapping[str, float]
    switches: Mapping[str, float]
    slow: frozenset[str] = frozenset()  # hosts that are slower than their cards and others: no measure for the others


NOTHING_MEASURED = MeasuredNetwork({}, {}, {})


def measured_network(
    samples: Sequence[FlowSample], assumed: Switches, cards: Mapping[str, float] = NO_CARDS
) -> MeasuredNetwork:
    """Return what the samples show, given at which switch each host was thought to be, and the speeds of cards.

    Other hosts are left out.
    """
    samples = [_among(sample, assumed) for sample in samples]
    switch_of = _named(_Search(samples, cards).best(assumed))
    fit = _Fit(samples, switch_of, cards)
    capacity, shown = fit.capacity | fit.lately(), fit.shown()
    hosts = {name: capacity[name, False] for name in switch_of if (name, False) in shown}
    switches = {name: capacity[name, True] for name in set(switch_of.values()) if (name, True) in shown}
    return MeasuredNetwork(switch_of, hosts, switches, frozenset(fit.blamed()) & hosts.keys())


def cost(samples: Sequence[FlowSample], switch_of: Switches, cards: Mapping[str, float] = NO_CARDS) -> float:
    """Return how much of the samples the switches leave unexplained, and what they need to explain the rest."""
    return _Fit(samples, switch_of, cards).cost()


class _Fit:
    """Capacities of links that follow from samples, given the switch of each host."""

    def __init__(self, samples: Sequence[FlowSample], switch_of: Switches, cards: Mapping[str, float]) -> None:
        self._switch_of = switch_of
        self._samples = samples
        self._loads = [self._load(sample) for sample in samples]
        self.capacity: dict[_Link, float] = {}
        for load in self._loads:
            for (link, _), rate in load.items():
                self.capacity[link] = max(rate, self.capacity.get(link, 0.0))
        for sample in samples:
            for pair in sample.swift:
                for name in pair:  # whose own links have room for more than this flow
                    link = name, False
                    self.capacity[link] = max(self.capacity[link], _SWIFT * sample.rates[pair])
        fastest = max((rate for (_, is_switch), rate in self.capacity.items() if not is_switch), default=0.0)
        self._expected = {
            link: rate if link[1] else max(rate, min(fastest, cards.get(link[0], fastest)))
            for link, rate in self.capacity.items()
        }

    def cost(self) -> float:
        """Return what the switches, and hosts that are said to be slow, cost with all that they leave unexplained."""
        needed = _COST_OF_A_SWITCH * len(set(self._switch_of.values()))
        return needed + self._explained()[1] + _COST_OF_A_CONTRADICTION * self._contradictions()

    def slow(self) -> Iterator[tuple[int, Pair, float]]:
        """Yield free flows that no link explains: their sample's number, and how full the fullest on their way is.

        A host's link is taken to carry what its card does, or the fastest that was seen.
        """
        for number, (sample, load) in enumerate(zip(self._samples, self._loads, strict=True)):
            for pair in sorted(sample.free):
                fullness = max(load[way] / self._expected[way[0]] for way in self._way(pair))
                if fullness < NEAR:
                    yield number, pair, fullness

    def blamed(self) -> set[str]:
        """Return hosts whose links must be slow to explain free flows."""
        return self._explained()[0]

    def _explained(self) -> tuple[set[str], float]:
        """Return hosts whose links must be slow to explain free flows, and what they and all that is left cost."""
        left = [(number, pair, NEAR - fullness) for number, pair, fullness in self.slow()]
        blamed, spent = set[str](), 0.0
        while True:
            gains: dict[str, float] = {}
            pairs: dict[str, set[Pair]] = {}
            for number, pair, gain in left:
                for name in self._full_hosts(number, pair):
                    gains[name] = gains.get(name, 0.0) + gain
                    pairs.setdefault(name, set()).add(pair)
            for name, found in pairs.items():
                gains[name] -= _COST_OF_A_SLOW_HOST if len(found) > 1 else _COST_OF_A_SLOW_PAIR
            name = max(gains, key=lambda one: (gains[one], one), default="")
            if gains.get(name, 0.0) <= 0:
                return blamed, spent + sum(gain for _, _, gain in left)
            blamed.add(name)
            spent += _COST_OF_A_SLOW_HOST if len(pairs[name]) > 1 else _COST_OF_A_SLOW_PAIR
            left = [one for one in left if name not in self._full_hosts(*one[:2])]

    def _full_hosts(self, number: int, pair: Pair) -> Iterator[str]:
        """Yield the ends of a flow whose own link never carried clearly more."""
        load = self._loads[number]
        for name, is_up in zip(pair, (True, False), strict=True):
            if load[(name, False), is_up] >= NEAR * self.capacity[name, False]:
                yield name

    def _contradictions(self) -> int:
        """Return how many swift flows there are over links that were full, as free flows beside them have it."""
        found = 0
        for sample, load in zip(self._samples, self._loads, strict=True):
            if sample.swift:
                full = {way for pair in sample.free for way in self._way(pair) if self._is_full_switch(load, way)}
                found += sum(not full.isdisjoint(self._way(pair)) for pair in sample.swift)
        return found

    def _is_full_switch(self, load: Mapping[_Way, float], way: _Way) -> bool:
        return way[0][1] and load[way] >= NEAR * self.capacity[way[0]]

    def shown(self) -> set[_Link]:
        """Return the links that were the reason of free flows' rates: hosts' with two others at least."""
        others: dict[_Link, set[str]] = {}
        blamed = self.blamed()
        for sample, load in zip(self._samples, self._loads, strict=True):
            for source, receiver in sample.free:
                for link, is_up in self._way((source, receiver)):
                    is_reason = link[1] or link[0] in blamed or self.capacity[link] >= NEAR * self._expected[link]
                    if is_reason and load[link, is_up] >= NEAR * self.capacity[link]:
                        others.setdefault(link, set()).add(receiver if is_up else source)
        return {link for link, names in others.items() if link[1] or len(names) > 1}

    def lately(self) -> dict[_Link, float]:
        """Return the capacity of links that carry less than before: the fullest on the way of each slow flow."""
        newest = max((sample.at for sample in self._samples), default=0.0)
        found: dict[_Link, float] = {}
        for sample, load in zip(self._samples, self._loads, strict=True):
            if sample.at > newest - _LATELY_S:
                full = {
                    link: load[link, is_up]
                    for pair in sample.free
                    for link, is_up in self._fullest(pair, load)
                    if load[link, is_up] < NEAR * self.capacity[link]
                }
                found = {link: rate for link, rate in found.items() if self._most(load, link) <= rate} | full
        return found

    def _fullest(self, pair: Pair, load: Mapping[_Way, float]) -> list[_Way]:
        """Return the fullest link on a flow's way, as a list; a switch's before a host's."""
        return [max(self._way(pair), key=lambda way: (load[way] / self.capacity[way[0]], way[0][1]))]

    def _most(self, load: Mapping[_Way, float], link: _Link) -> float:
        return max(load.get((link, is_up), 0.0) for is_up in (True, False))

    def _load(self, sample: FlowSample) -> dict[_Way, float]:
        """Return the bytes per second on each direction of each link; True is up."""
        load: dict[_Way, float] = {}
        for pair, rate in sample.rates.items():
            for way in self._way(pair):
                load[way] = load.get(way, 0.0) + rate
        return load

    def _way(self, pair: Pair) -> list[_Way]:
        source, receiver = pair
        one, other = self._switch_of[source], self._switch_of[receiver]
        way = [((source, False), True), ((receiver, False), False)]
        return way if one == other else [*way, ((one, True), True), ((other, True), False)]


class _Search:
    """The search for the best switches, from the assumed ones: it parts them, one at a time."""

    def __init__(self, samples: Sequence[FlowSample], cards: Mapping[str, float]) -> None:
        self._samples, self._cards = samples, cards

    def best(self, assumed: Switches) -> Switches:
        best, least = dict(assumed), self._cost(assumed)
        while True:
            tried = sorted(self._splits(best), key=self._cost)
            found = [self._climbed(split) for split in tried[:_MOST_CLIMBS]]
            cheapest = min(found, key=lambda one: one[0], default=(least, best))
            if cheapest[0] >= least:
                return best
            least, best = cheapest

    def _cost(self, switch_of: Switches) -> float:
        return cost(self._samples, switch_of, self._cards)

    def _splits(self, switch_of: Switches) -> Iterator[dict[str, str]]:
        """Yield ways to part a switch between the two ends of slow flows.

        Flows of one sample that are slow share a link: their sources are on one side of it, or their receivers are;
        or, along a line that crosses it again and again, the ends of each. And hosts between which flows were faster
        than the slow one are on one side.
        """
        slow: dict[int, list[Pair]] = {}
        for number, pair, _ in _Fit(self._samples, switch_of, self._cards).slow():
            if switch_of[pair[0]] == switch_of[pair[1]]:
                slow.setdefault(number, []).append(pair)
        sides: dict[frozenset[str], None] = {}
        for number, pairs in slow.items():
            for end in (0, 1):
                sides[frozenset(pair[end] for pair in pairs)] = None
                for pair in pairs[:2]:
                    sides[_joined(self._samples, pair[end], self._samples[number].rates[pair] / NEAR)] = None
            sides |= dict.fromkeys(_two_sides(self._samples[number], pairs))
        for side in sides:
            for switch in sorted({switch_of[name] for name in side}):
                inside = [name for name in side if switch_of[name] == switch]
                yield {**switch_of, **dict.fromkeys(inside, _new_name(switch, switch_of.values()))}

    def _climbed(self, switch_of: dict[str, str]) -> tuple[float, dict[str, str]]:
        """Move single hosts to other switches for as long as that explains more; return the cost and the switches."""
        least, names = self._cost(switch_of), sorted(set(switch_of.values()))
        moved = {name for sample in self._samples for pair in sample.rates for name in pair}
        for _ in range(_MOST_PASSES):
            before = least
            for host in sorted(moved):
                for name in names:
                    changed = {**switch_of, host: name}
                    if name != switch_of[host] and (found := self._cost(changed)) < least - 1e-9:
                        least, switch_of = found, changed
            if least == before:
                break
        return least, switch_of


def _two_sides(sample: FlowSample, slow: Sequence[Pair]) -> Iterator[frozenset[str]]:
    """Yield hosts of one side, if every slow flow goes from one side to the other, and no swift one does."""
    fast = max(sample.rates[pair] for pair in slow) / NEAR
    near = [pair for pair, rate in sample.rates.items() if pair in sample.swift or rate > fast]
    side: dict[str, bool] = {}
    parts: list[list[str]] = []
    neighbours: dict[str, list[tuple[str, bool]]] = {}
    for pairs, is_across in ((near, False), (slow, True)):
        for one, other in pairs:
            neighbours.setdefault(one, []).append((other, is_across))
            neighbours.setdefault(other, []).append((one, is_across))
    for first in sorted({name for pair in slow for name in pair}):
        if first in side:
            continue
        side[first], part, stack = False, list[str](), [first]
        while stack:
            name = stack.pop()
            part.append(name)
            for other, is_across in neighbours[name]:
                if other not in side:
                    side[other] = side[name] != is_across
                    stack.append(other)
        parts.append(part)
        ahead = sum(side[source] - side[receiver] for source, receiver in slow if source in part)
        if ahead > 0:  # in doubt, slow flows go the same way
            side |= {name: not side[name] for name in part}
    for turned in range(1 << min(len(parts) - 1, _MOST_TURNED)):
        yield frozenset(
            name for number, part in enumerate(parts) for name in part if side[name] != bool(turned >> number & 1)
        )


def _joined(samples: Sequence[FlowSample], host: str, rate: float) -> frozenset[str]:
    """Return the hosts that flows above this rate join to one, through others or not."""
    near: dict[str, set[str]] = {}
    for sample in samples:
        for (one, other), found in sample.rates.items():
            if found > rate:
                near.setdefault(one, set()).add(other)
                near.setdefault(other, set()).add(one)
    joined, stack = {host}, [host]
    while stack:
        new = near.get(stack.pop(), set()) - joined
        joined |= new
        stack += new
    return frozenset(joined)


def _named(switch_of: Switches) -> dict[str, str]:
    """Return the same switches with names that follow from their hosts: the first of them keeps the old name."""
    firsts: dict[str, str] = {}
    for host in sorted(switch_of):
        firsts.setdefault(switch_of[host], host)
    names: dict[str, str] = {}
    for switch in sorted(firsts, key=lambda name: firsts[name]):
        base = switch.partition(_PART)[0]
        names[switch] = _new_name(base, names.values()) if base in names.values() else base
    return {host: names[switch] for host, switch in switch_of.items()}


def _new_name(switch: str, known: Iterable[str]) -> str:
    """Return the name of a switch that is parted from another one."""
    base, taken = switch.partition(_PART)[0], set(known)
    return next(name for number in range(2, len(taken) + 3) if (name := f"{base}{_PART}{number}") not in taken)


def _among(sample: FlowSample, hosts: Switches) -> FlowSample:
    """Return the sample without flows from or to other hosts."""
    rates = {pair: rate for pair, rate in sample.rates.items() if pair[0] in hosts and pair[1] in hosts and rate}
    return FlowSample(sample.at, rates, sample.free & rates.keys(), sample.swift & rates.keys())
