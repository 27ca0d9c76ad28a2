"""Samples of flows, with the reason for each flow's rate.

A *free* flow is limited by the network alone, so some link on its way is full while it runs. A *swift* one is limited
by its source alone: the network had room for far more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

Pair = tuple[str, str]
"""Source and receiver of a flow."""
Switches = Mapping[str, str]
"""The switch of each host."""
Way = tuple[str, bool]
"""A link of a host or a switch, in one direction; True is up."""

NO_CARDS: Mapping[str, float] = {}
NEAR = 0.8
"""A link counts as full from this share of its capacity: rates are measured, and share links unevenly."""


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Flows with their rates in bytes per second. They ran together, or one after the other (``in_turn``)."""

    at: float
    rates: Mapping[Pair, float]
    free: frozenset[Pair]  # subset: limited by the network alone
    swift: frozenset[Pair] = frozenset()  # limited by their sources alone: the network had room for far more
    in_turn: bool = False  # first pieces of a file, one on each hop of a line
    is_idle: bool = False  # nothing else used the network

    def among(self, hosts: Switches) -> FlowSample:
        """Return the sample without flows from or to other hosts."""
        rates = {pair: rate for pair, rate in self.rates.items() if pair[0] in hosts and pair[1] in hosts and rate}
        return replace(self, rates=rates, free=self.free & rates.keys(), swift=self.swift & rates.keys())

    def together(self) -> Iterator[FlowSample]:
        """Yield samples of the flows that ran at one time."""
        if not self.in_turn:
            yield self
            return
        for pair, rate in self.rates.items():
            yield replace(self, rates={pair: rate}, free=self.free & {pair}, swift=self.swift & {pair})


def load_of(sample: FlowSample, place: Switches | None = None) -> dict[Way, float]:
    """Return the load of each host's link in each direction, or of each switch's link, in bytes per second."""
    load: dict[Way, float] = {}
    for pair, rate in sample.rates.items():
        one, other = (place[pair[0]], place[pair[1]]) if place else pair
        if one != other:
            load[one, True] = load.get((one, True), 0.0) + rate
            load[other, False] = load.get((other, False), 0.0) + rate
    return load
