"""The network card: subnet, gateway and speed of the card that leads to the master."""

from __future__ import annotations

import ipaddress
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from loopline_shared.protocol.host_link import HostLink

_ROUTES = Path("/proc/net/route")
_BYTES_S_PER_MBIT = 1e6 / 8


def host_link(address: str, master: str, routes: Path = _ROUTES) -> HostLink | None:
    """Return the link of the card that has this address; None if no card has it, or it leads nowhere.

    ``master`` is the master's address if that is known as a number. Speeds that the system does not tell are None.
    """
    for card, found in psutil.net_if_addrs().items():
        for one in found:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.address.partition("%")[0] == address:
                subnet = _subnet(address, one.netmask)
                if subnet is None:
                    return None
                stats = psutil.net_if_stats().get(card)
                rate = stats.speed * _BYTES_S_PER_MBIT if stats and stats.speed > 0 else None
                return HostLink(str(subnet), _gateway(card, subnet, routes), rate, _is_within(master, subnet))
    return None


def card_in(subnet: str) -> str:
    """Return the name of a network card that has an address in exactly this subnet; empty if none has."""
    for card, found in psutil.net_if_addrs().items():
        for one in found:
            if str(_subnet(one.address.partition("%")[0], one.netmask)) == subnet:
                return card
    return ""


def _subnet(address: str, netmask: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    with suppress(ValueError):
        bits = bin(int(ipaddress.ip_address(netmask or ""))).count("1")
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    return None


def _is_within(master: str, subnet: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(master) in subnet
    return False


def _gateway(card: str, subnet: ipaddress.IPv4Network | ipaddress.IPv6Network, routes: Path) -> str:
    """Return the card's gateway of IPv4, where Linux tells it; empty otherwise."""
    with suppress(OSError, ValueError, OverflowError, IndexError):
        for words in map(str.split, routes.read_text("ascii").splitlines()[1:]):
            gateway = ipaddress.ip_address(int(words[2], 16).to_bytes(4, sys.byteorder))
            if words[0] == card and int(gateway) and gateway in subnet:
                return str(gateway)
    return ""
