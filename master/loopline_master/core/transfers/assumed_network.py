"""The network that is assumed from what hosts report, until something is known of it.

Hosts of one subnet with one gateway are taken to be at one switch, each on a link of its card's speed. All switches
are taken to be linked by one above them, at the speed of the fastest card below: no report says that less is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_master.core.transfers.network import Network, NetworkNode

ROOT = "network"
"""The switch that is assumed above all others."""


@dataclass(frozen=True, slots=True)
class HostLink:
    """A host's network card, as its agent reports it."""

    subnet: str  # such as 10.1.2.0/24
    gateway: str  # such as 10.1.2.1; empty if there is none
    rate: float  # bytes per second

    @property
    def switch(self) -> str:
        return f"{self.subnet} via {self.gateway}" if self.gateway else self.subnet


def assumed_network(links: Mapping[str, HostLink]) -> Network:
    """Return the tree that is assumed for these hosts: the same whatever their order."""
    fastest: dict[str, float] = {}
    for link in links.values():
        fastest[link.switch] = max(link.rate, fastest.get(link.switch, 0.0))
    switches = [NetworkNode(name, ROOT, rate, rate, is_switch=True) for name, rate in sorted(fastest.items())]
    hosts = [NetworkNode(name, link.switch, link.rate, link.rate) for name, link in sorted(links.items())]
    return Network([NetworkNode(ROOT, None, is_switch=True), *switches, *hosts])
