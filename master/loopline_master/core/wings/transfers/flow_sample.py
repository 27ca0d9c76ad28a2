"""Samples of flows, and the capacities of the hosts' own links that they show, for any choice of switches.

A *free* flow is limited by the network alone. So some link on its way is full while it runs. A link's capacity is the
highest load seen on it, in either direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[str, str]
"""Source and receiver of a flow."""
Switches = Mapping[str, str]
"""The switch of each host."""
Way = tuple[str, bool]
"""A link of a host or a switch, in one direction; True is up."""

NO_CARDS: Mapping[str, float] = {}
NEAR = 0.8
"""A link counts as full from this share of its capacity: rates are measured, and share links unevenly."""
_SWIFT = 3.0
"""The links of both hosts carry at least this multiple of a swift flow's rate."""


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Flows that ran together at one time, with their rates in bytes per second."""

    at: float
    rates: Mapping[Pair, float]
    free: frozenset[Pair]  # subset: limited by the network alone
    swift: frozenset[Pair] = frozenset()  # limited by their sources alone: the network had room for far more

    def among(self, hosts: Switches) -> FlowSample:
        """Return the sample without flows from or to other hosts."""
        rates = {pair: rate for pair, rate in self.rates.items() if pair[0] in hosts and pair[1] in hosts and rate}
        return FlowSample(self.at, rates, self.free & rates.keys(), self.swift & rates.keys())


@dataclass(frozen=True, slots=True)
class DoubtfulFlow:
    """A free flow that was slow for another reason than a host's link."""

    sample: int  # number of its sample
    pair: Pair
    fullness: float  # of the fuller of both hosts' links
    full: tuple[str, ...]  # its ends that never carried clearly more on their own link: they may be slow


class FlowRecord:
    """All samples, and the hosts' own links as these show them: computed once for all choices of switches."""

    def __init__(self, samples: Sequence[FlowSample], cards: Mapping[str, float]) -> None:
        """``cards``: bytes per second of hosts' cards, where known."""
        self.samples = samples
        self.loads = [_load(sample) for sample in samples]  # bytes per second of each direction of hosts' links
        self.capacity = _capacities(samples, self.loads)
        fastest = max(self.capacity.values(), default=0.0)
        self.expected = {
            name: max(rate, min(fastest, cards.get(name, fastest))) for name, rate in self.capacity.items()
        }
        self.doubtful = [flow for number in range(len(samples)) for flow in self._doubtful(number)]

    def _doubtful(self, number: int) -> list[DoubtfulFlow]:
        """Return a sample's doubtful flows. A host's link is assumed to have its card's rate, or the fastest seen."""
        load, found = self.loads[number], []
        for pair in sorted(self.samples[number].free):
            ends = tuple(zip(pair, (True, False), strict=True))
            fullness = max(load[end] / self.expected[end[0]] for end in ends)
            if fullness < NEAR:
                full = tuple(end[0] for end in ends if load[end] >= NEAR * self.capacity[end[0]])
                found.append(DoubtfulFlow(number, pair, fullness, full))
        return found


def _load(sample: FlowSample) -> dict[Way, float]:
    load: dict[Way, float] = {}
    for (source, receiver), rate in sample.rates.items():
        load[source, True] = load.get((source, True), 0.0) + rate
        load[receiver, False] = load.get((receiver, False), 0.0) + rate
    return load


def _capacities(samples: Sequence[FlowSample], loads: Sequence[Mapping[Way, float]]) -> dict[str, float]:
    """Return the highest load of each host's link, or a higher rate that it had room for."""
    capacity: dict[str, float] = {}
    for load in loads:
        for (name, _), rate in load.items():
            capacity[name] = max(rate, capacity.get(name, 0.0))
    for sample in samples:
        for pair in sample.swift:
            for name in pair:  # their own links have room for more than this flow
                capacity[name] = max(capacity[name], _SWIFT * sample.rates[pair])
    return capacity
