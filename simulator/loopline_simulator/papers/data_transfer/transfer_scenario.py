"""Random situations: a campus network, files and their holders, demands over time, and links that change."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_master.core.wings.transfers.network import NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand
from loopline_simulator.streams import stream

MASTER = "master"
"""The host at the root switch that has every file."""
_MBIT = 1e6 / 8
_EDGE = (1000 * _MBIT, 1000 * _MBIT, 100 * _MBIT)
_UPLINK = (1000 * _MBIT, 1000 * _MBIT, 100 * _MBIT)
"""Capacities that links are drawn from, in bytes per second."""
_LEAST_FACTOR = 0.2


@dataclass(frozen=True, slots=True)
class Arrival:
    """A demand, and when it comes."""

    at: float  # seconds
    demand: Demand


@dataclass(frozen=True, slots=True)
class LinkChange:
    """From a time on, the link of a node has ``factor`` of its capacity."""

    at: float  # seconds
    node: str
    factor: float


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a run of any strategy begins with."""

    nodes: tuple[NetworkNode, ...]
    sizes: dict[str, float]  # bytes of each file
    holders: dict[str, tuple[str, ...]]
    arrivals: tuple[Arrival, ...]  # by time
    changes: tuple[LinkChange, ...]  # by time


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferScenario:
    """Numbers that situations are drawn by."""

    hosts: int = 32
    switches: int = 6
    files: int = 8
    copies: int = 2  # of each file on hosts, beside the master's
    wants: int = 2  # files that each host wants
    size_mb: float = 500.0  # mean; drawn from half of it to one and a half
    spread_s: float = 0.0  # demands come within this time
    change_every_s: float = 0.0  # mean time between changes of a switch's uplink; 0: none

    def draw(self, seed: int) -> Situation:
        """Return the situation of a seed."""
        names = tuple(f"host-{number:02}" for number in range(1, self.hosts + 1))
        files = tuple(f"file-{number}" for number in range(1, self.files + 1))
        chance = stream(seed, "files")
        sizes = {file: self.size_mb * 1e6 * float(chance.uniform(0.5, 1.5)) for file in files}
        copies = min(self.copies, self.hosts)
        holders = {file: (MASTER, *map(str, chance.choice(names, copies, replace=False))) for file in files}
        return Situation(
            self._nodes(seed, names), sizes, holders, self._arrivals(seed, names, holders), self._changes(seed)
        )

    def _nodes(self, seed: int, names: tuple[str, ...]) -> tuple[NetworkNode, ...]:
        chance = stream(seed, "network")
        nodes = [NetworkNode("switch-0", None, is_switch=True), NetworkNode(MASTER, "switch-0", _EDGE[0], _EDGE[0])]
        for number in range(1, self.switches):
            rate = float(chance.choice(_UPLINK))
            above = f"switch-{chance.integers(number)}"
            nodes.append(NetworkNode(f"switch-{number}", above, rate, rate, is_switch=True))
        for name in names:
            rate = float(chance.choice(_EDGE))
            nodes.append(NetworkNode(name, f"switch-{chance.integers(self.switches)}", rate, rate))
        return tuple(nodes)

    def _arrivals(
        self, seed: int, names: tuple[str, ...], holders: dict[str, tuple[str, ...]]
    ) -> tuple[Arrival, ...]:
        chance = stream(seed, "demands")
        found = []
        for name in names:
            for file in map(str, chance.choice(sorted(holders), min(self.wants, self.files), replace=False)):
                at = self.spread_s * float(chance.uniform())
                if name not in holders[file]:
                    found.append(Arrival(at, Demand(file, name)))
        return tuple(sorted(found, key=lambda arrival: arrival.at))

    def _changes(self, seed: int) -> tuple[LinkChange, ...]:
        """Return the changes of an hour, which is longer than most runs."""
        chance, at, found = stream(seed, "changes"), 0.0, []
        while self.change_every_s and self.switches > 1 and at < 3600.0:
            at += float(chance.exponential(self.change_every_s))
            node = f"switch-{chance.integers(1, self.switches)}"
            found.append(LinkChange(at, node, float(chance.uniform(_LEAST_FACTOR, 1.0))))
        return tuple(found)
