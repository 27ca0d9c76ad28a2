"""The measured network: capacities of links, and hosts that share a link, as transfers have shown them.

If a free flow is slow while no known link is full, there is an unknown link: the hosts of a switch are divided into
two switches, so that the links to them explain it. The search looks for the fewest switches that explain the most.
``cost`` (``network_fit.py``) rates any choice, and the tests compare the search with all choices. The result is a
tree of two levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, product

from loopline_master.core.wings.transfers.flow_sample import NEAR, NO_CARDS, FlowRecord, FlowSample, Pair, Switches
from loopline_master.core.wings.transfers.network_fit import NetworkFit

_PART = " #"
"""Separates the name of a switch from the number of a switch that was split off."""
_MOST_TURNED = 2
_MOST_CLIMBS, _MOST_PASSES = 4, 3
"""Bounds of the search: divisions of a switch that are improved, and moves of each host ..."""
_MOST_FLOWS, _MOST_CHECKED = 16_000, 1_000_000
"""... flows, the newest, and flows in all choices together: about one or two seconds of a thread."""


@dataclass(frozen=True, slots=True)
class MeasuredNetwork:
    """The switch of each host, and the known capacities of links, in bytes per second each way."""

    switch_of: Switches
    hosts: Mapping[str, float]
    switches: Mapping[str, float]
    slow: frozenset[str] = frozenset()  # hosts slower than their cards and than others: not used to judge the others


NOTHING_MEASURED = MeasuredNetwork({}, {}, {})


def measured_network(
    samples: Sequence[FlowSample], assumed: Switches, cards: Mapping[str, float] = NO_CARDS
) -> MeasuredNetwork:
    """Return the network that the samples show, given the assumed switch of each host and the speeds of cards.

    Other hosts are left out.
    """
    record = FlowRecord(_newest([sample.among(assumed) for sample in samples]), cards)
    switch_of = _named(_Search(record).best(assumed))
    fit = NetworkFit(record, switch_of)
    hosts, switches = fit.known()
    return MeasuredNetwork(switch_of, hosts, switches, frozenset(fit.blamed()) & hosts.keys())


def _newest(samples: Sequence[FlowSample]) -> list[FlowSample]:
    """Return the newest samples within the limit of flows, at least one sample."""
    counts = accumulate(len(sample.rates) for sample in reversed(samples))
    kept = sum(count <= _MOST_FLOWS for count in counts)
    return list(samples[-max(1, kept) :])


class _Search:
    """Search for the best switches: starts with the assumed ones and splits them, one at a time, in bounded time."""

    def __init__(self, record: FlowRecord) -> None:
        self._record, self._samples = record, record.samples
        self._hosts = sorted({name for sample in self._samples for pair in sample.rates for name in pair})
        self._choices_left = _MOST_CHECKED // max(1, sum(len(sample.rates) for sample in self._samples))
        self._are_many = 2 * len(self._hosts) > self._choices_left  # too many to move each

    def best(self, assumed: Switches) -> Switches:
        best, least = dict(assumed), self._cost(assumed)
        while True:
            tried = [(self._cost(split), split) for split in self._splits(best) if self._choices_left > 0]
            tried.sort(key=_by_cost)
            found = [self._climbed(*split) for split in tried[:_MOST_CLIMBS]]
            cheapest = min(found, key=_by_cost, default=(least, best))
            if cheapest[0] >= least:
                return best
            least, best = cheapest

    def _cost(self, switch_of: Switches) -> float:
        self._choices_left -= 1
        return NetworkFit(self._record, switch_of).cost()

    def _splits(self, switch_of: Switches) -> Iterator[dict[str, str]]:
        """Yield ways to divide a switch between the two ends of slow flows.

        Slow flows of one sample share a link: their sources are on one side of it, or their receivers are; or, along
        a line that crosses it repeatedly, the ends of each. (If there are too many hosts to move each, all samples
        are also combined, as they cover more hosts than one.) Hosts between which flows were faster than the slow one
        are on one side.
        """
        slow: dict[int, list[Pair]] = {}
        for flow in NetworkFit(self._record, switch_of).slow():
            if switch_of[flow.pair[0]] == switch_of[flow.pair[1]]:
                slow.setdefault(flow.sample, []).append(flow.pair)
        sides: dict[frozenset[str], None] = {}
        near = {number: _near(self._samples[number], pairs) for number, pairs in slow.items()}
        if len(slow) > 1 and self._are_many:
            sides |= dict.fromkeys(_two_sides([*chain(*near.values())], [*chain(*slow.values())]))
        for number, pairs in slow.items():
            for end in (0, 1):
                sides[frozenset(pair[end] for pair in pairs)] = None
                for pair in pairs[:2]:
                    sides[_joined(self._samples, pair[end], self._samples[number].rates[pair] / NEAR)] = None
            sides |= dict.fromkeys(_two_sides(near[number], pairs))
        for side in sides:
            for switch in sorted({switch_of[name] for name in side}):
                inside = [name for name in side if switch_of[name] == switch]
                yield {**switch_of, **dict.fromkeys(inside, _new_name(switch, switch_of.values()))}

    def _climbed(self, least: float, switch_of: dict[str, str]) -> tuple[float, dict[str, str]]:
        """Move single hosts to other switches while that explains more; return the cost and the switches."""
        names = sorted(set(switch_of.values()))
        for _ in range(_MOST_PASSES):
            before = least
            for host, name in product(self._hosts, names):
                if name != switch_of[host] and self._choices_left > 0:
                    changed = {**switch_of, host: name}
                    if (found := self._cost(changed)) < least - 1e-9:
                        least, switch_of = found, changed
            if least == before:
                break
        return least, switch_of


def _by_cost(choice: tuple[float, dict[str, str]]) -> float:
    return choice[0]


def _near(sample: FlowSample, slow: Sequence[Pair]) -> list[Pair]:
    """Return the flows that the link of the slow ones cannot have carried."""
    fast = max(sample.rates[pair] for pair in slow) / NEAR
    return [pair for pair, rate in sample.rates.items() if pair in sample.swift or rate > fast]


def _two_sides(near: Sequence[Pair], slow: Sequence[Pair]) -> Iterator[frozenset[str]]:
    """Yield the hosts of one side, such that every slow flow crosses between the sides, and no near flow does."""
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
    """Return the hosts connected to ``host`` by flows above this rate, directly or through others."""
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
    """Return the name of a switch that is split off another one."""
    base, taken = switch.partition(_PART)[0], set(known)
    return next(name for number in range(2, len(taken) + 3) if (name := f"{base}{_PART}{number}") not in taken)
