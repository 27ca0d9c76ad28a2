"""The names and addresses of this computer, under which others may reach its master."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from contextlib import suppress

_SIOCGIFADDR = 0x8915
_MANY = 64


def own_names(host: str, also: tuple[str, ...] = ()) -> list[str]:
    """Return them, without doubles. ``host``: the address to listen on; ``also``: what the operator adds."""
    here = socket.gethostname()
    names = [*also, "localhost", here, socket.getfqdn(), "127.0.0.1", "::1", *_addresses(here)]
    if not _is_every_address(host):
        names.append(host)
    return [name for name in dict.fromkeys(names) if _can_be_named(name)]


def _addresses(here: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        found += [str(place[0]) for *_, place in socket.getaddrinfo(here, None)]
    if sys.platform == "linux":
        found += _of_interfaces()
    return [address.partition("%")[0] for address in found[:_MANY]]


def _of_interfaces() -> list[str]:
    """Return the IPv4 address of each interface."""
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
