"""The names and addresses of this computer, under which others may reach its master."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from contextlib import suppress

_SIOCGIFADDR = 0x8915
_MANY = 64
_KNOWN_HERE = (".localdomain", ".local", ".internal", ".in-addr.arpa", ".ip6.arpa")


def own_names(host: str, also: tuple[str, ...]) -> list[str]:
    """Return them, without doubles. ``host``: the address to bind; ``also``: further names from the operator."""
    here = socket.gethostname()
    names = [*also, "localhost", here, socket.getfqdn(), "127.0.0.1", "::1", *_addresses(here)]
    if not _is_every_address(host):
        names.append(host)
    return [name for name in dict.fromkeys(names) if _can_be_named(name)]


def reached_at(host: str) -> str:
    """Return a name or address under which other computers reach a port of this one that listens at ``host``.

    Its short name is often unknown elsewhere, so this is the full name if others can look it up, else the address
    towards the network.
    """
    if not _is_every_address(host):
        return f"[{host}]" if ":" in host else host
    name, outside = socket.getfqdn(), _outside()
    if "." in name and not name.endswith(_KNOWN_HERE) and _resolves(name) & {outside, *_of_interfaces()}:
        return name
    return outside or socket.gethostname()


def _outside() -> str:
    """Return the address of this computer towards the network; empty if it has none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent; the address is for documentation (RFC 5737)
        found = str(probe.getsockname()[0])
        return "" if ipaddress.ip_address(found).is_loopback else found
    return ""


def _resolves(name: str) -> set[str]:
    """Return the addresses of a name, but of loopback: computers often give themselves one."""
    with suppress(OSError):
        found = {str(place[0]).partition("%")[0] for *_, place in socket.getaddrinfo(name, None)}
        return {address for address in found if not ipaddress.ip_address(address).is_loopback}
    return set()


def _addresses(here: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        found += [str(place[0]) for *_, place in socket.getaddrinfo(here, None)]
    found += _of_interfaces()
    return [address.partition("%")[0] for address in found[:_MANY]]


def _of_interfaces() -> list[str]:
    """Return the IPv4 address of each interface, where the system tells."""
    if sys.platform != "linux":
        return []
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _can_be_named(name: str) -> bool:
    """True if a certificate can have this name."""
    return 0 < len(name) < 254 and name.isascii() and not name.isspace()
