"""The address of this computer in the network of its master."""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def address_towards(master: str) -> str:
    """Return the local address of a connection to the master; empty if that is unknown."""
    return addresses_towards(master)[0]


def addresses_towards(master: str) -> tuple[str, str]:
    """Return the local and the remote address of a connection to the master; empty if unknown.

    No packet is sent: a datagram socket that is connected only chooses its way.
    """
    url = urlsplit(master)
    port = url.port or _DEFAULT_PORTS.get(url.scheme, 80)
    with suppress(OSError):
        for family, kind, _, _, place in socket.getaddrinfo(_host(url.hostname), port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as way:
                way.connect(place)
                return str(way.getsockname()[0]), str(place[0])
    return "", ""


def _host(name: str | None) -> str | bytes | None:
    """Return the name for the resolver. Text would load the codec of names, which few names need."""
    return name.encode() if name and name.isascii() else name
