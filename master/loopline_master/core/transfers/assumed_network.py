"""The network that is assumed from what hosts report, until something is known of it.

Hosts of one subnet with one gateway are taken to be at one switch, each on a link of its card's speed. All switches
are taken to be linked by one above them, at the speed of the fastest card below: no report says that less is there.
The master is at the switch of a host in whose subnet it is, on as fast a link as any there.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline_master.core.transfers.network import Network, NetworkNode
from loopline_shared.protocol.host_link import HostLink

MASTER = "master"
"""The master's name in a network; a worker of that name takes its files from the master alone."""
ROOT = "network"
"""The switch that is assumed above all others."""
UNKNOWN_RATE = 125e6
"""Bytes per second that are assumed of a card whose speed is not known: 1 Gbit/s ..."""
LOOPBACK_RATE = 5e9
"""... and within one computer."""
_LOOPBACK = ("127.", "::1")


def assumed_network(links: Mapping[str, HostLink | None]) -> Network:
    """Return the tree that is assumed for the master and these hosts: the same whatever their order."""
    hosts, fastest = [], dict[str, float]()
    near, rate = ROOT, max((rate_of(link) for link in links.values()), default=UNKNOWN_RATE)
    for name, link in sorted(links.items()):
        switch = switch_of(link)
        hosts.append(NetworkNode(name, switch, rate_of(link), rate_of(link)))
        fastest[switch] = max(rate_of(link), fastest.get(switch, 0.0))
        if link and link.has_master and near == ROOT:
            near = switch
    master = fastest.get(near, rate)
    switches = [
        NetworkNode(name, ROOT, rate, rate, is_switch=True) for name, rate in sorted(fastest.items()) if name != ROOT
    ]
    root = NetworkNode(ROOT, None, is_switch=True)
    return Network([root, *switches, NetworkNode(MASTER, near, master, master), *hosts])


def switch_of(link: HostLink | None) -> str:
    """Return the name of the switch at which a host is taken to be."""
    if link is None or not link.subnet:
        return ROOT
    return f"{link.subnet} via {link.gateway}" if link.gateway else link.subnet


def rate_of(link: HostLink | None) -> float:
    """Return what a host's link is taken to carry, in bytes per second."""
    if link and link.rate:
        return link.rate
    return LOOPBACK_RATE if link and link.subnet.startswith(_LOOPBACK) else UNKNOWN_RATE
