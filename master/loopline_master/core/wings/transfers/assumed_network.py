"""The assumed network, derived from the hosts' reports until measurements are known.

Hosts of one subnet with one gateway are assumed to be at one switch, each on a link of its card's speed. All switches
are assumed to be linked by one above them, at the speed of the fastest card below, as no report suggests less. The
master is at the switch of a host in whose subnet it is, on as fast a link as any there.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline_master.core.wings.transfers.measured_network import NOTHING_MEASURED, MeasuredNetwork
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_shared.protocol.host_link import HostLink

MASTER = "master"
"""The master's name in a network; a worker of that name takes its files from the master alone."""
ROOT = "network"
"""Name of the assumed switch above all others."""
UNKNOWN_RATE = 125e6
"""Assumed bytes per second of a card of unknown speed: 1 Gbit/s ..."""
LOOPBACK_RATE = 5e9
"""... and within one computer."""
_LOOPBACK = ("127.", "::1")


def assumed_network(links: Mapping[str, HostLink | None], measured: MeasuredNetwork = NOTHING_MEASURED) -> Network:
    """Return the tree of the master and these hosts, in any order; measurements take precedence."""
    at = assumed_switches(links) | {name: at for name, at in measured.switch_of.items() if name in (MASTER, *links)}
    rates = _rates(links, at, measured)
    fastest = dict[str, float]()
    for name, rate in rates.items():
        fastest[at[name]] = max(rate, fastest.get(at[name], 0.0))
    rates[MASTER] = measured.hosts.get(MASTER, fastest.get(at[MASTER], max(rates.values(), default=UNKNOWN_RATE)))
    switches = {
        name: measured.switches.get(name, fastest.get(name, rates[MASTER])) for name in {*at.values()} - {ROOT}
    }
    return Network(
        [
            NetworkNode(ROOT, None, is_switch=True),
            *(NetworkNode(name, ROOT, rate, rate, is_switch=True) for name, rate in sorted(switches.items())),
            *(NetworkNode(name, at[name], rates[name], rates[name]) for name in (MASTER, *sorted(links))),
        ]
    )


def _rates(
    links: Mapping[str, HostLink | None], at: Mapping[str, str], measured: MeasuredNetwork
) -> dict[str, float]:
    """Return the assumed rate of each host's link: as measured, or as other hosts with such cards at its switch."""
    rates = {name: rate_of(link) for name, link in links.items()}
    found = {name: rate for name, rate in measured.hosts.items() if name in rates}
    alike = dict[tuple[str, float], float]()
    for name, rate in found.items():
        if name in measured.slow:
            continue
        key = at[name], rates[name]
        alike[key] = max(rate, alike.get(key, 0.0))
    return {name: min(rate, alike.get((at[name], rate), rate)) for name, rate in rates.items()} | found


def assumed_switches(links: Mapping[str, HostLink | None]) -> dict[str, str]:
    """Return the assumed switch of each host and of the master."""
    at = {name: switch_of(link) for name, link in sorted(links.items())}
    near = next((at[name] for name, link in sorted(links.items()) if link and link.has_master), ROOT)
    return at | {MASTER: near}


def switch_of(link: HostLink | None) -> str:
    """Return the name of the assumed switch of a host."""
    if link is None or not link.subnet:
        return ROOT
    return f"{link.subnet} via {link.gateway}" if link.gateway else link.subnet


def rate_of(link: HostLink | None) -> float:
    """Return the assumed rate of a host's link, in bytes per second."""
    if link and link.rate:
        return link.rate
    return LOOPBACK_RATE if link and link.subnet.startswith(_LOOPBACK) else UNKNOWN_RATE
