"""Magic packets, which start a sleeping computer if its network card is armed for Wake-on-LAN.

They are broadcast, because a sleeping computer does not answer at its address. Routers drop most broadcasts, so the
sender should be in the same subnet. A worker names the subnet of its computer, so packets are only sent to the
broadcast address of a private network, or of a network of this computer: elsewhere it may be a stranger's address.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

PACKETS = 3
"""Number of packets sent for one wake: single packets are lost."""
_ALL_NODES = "ff02::1"
_PORT = 9
"""The port *discard*: a card in sleep looks at the content alone, and an awake computer ignores it."""


def magic_packet(hardware_address: str) -> bytes:
    """Return the content of the packet for a card, such as 3c:52:82:0a:11:f0. Raises ValueError."""
    octets = bytes.fromhex(hardware_address.replace(":", ""))
    if len(octets) != 6:
        raise ValueError(f"expected a hardware address such as 3c:52:82:0a:11:f0, got {hardware_address!r}")
    return b"\xff" * 6 + octets * 16


def send(hardware_address: str, subnet: str, interface: str = "") -> None:
    """Broadcast magic packets in this subnet, through this interface alone if it is given.

    IPv6 has no broadcasts: there they go to all nodes of the interface, which must be given. Raises ValueError if an
    argument is malformed or the subnet is no local network, and OSError if nothing can be sent.
    """
    content, network = magic_packet(hardware_address), ip_network(subnet)
    if network.version == 4 and not _is_local(network):
        raise ValueError("it is neither a private network nor one of this computer, or has no broadcast address")
    with _open(network) as outgoing:
        if interface and hasattr(socket, "SO_BINDTODEVICE"):
            outgoing.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        target: tuple[str | int, ...] = (str(network.broadcast_address), _PORT)
        if network.version == 6:
            target = (_ALL_NODES, _PORT, 0, socket.if_nametoindex(interface))
        for _ in range(PACKETS):
            outgoing.sendto(content, target)


def is_in(subnet: str) -> bool:
    """True if this computer has an address in this subnet. Raises ValueError if it is malformed."""
    network = ip_network(subnet)
    with _open(network) as probe:
        try:
            probe.connect((str(network.broadcast_address), _PORT))
        except OSError:  # no route leads there
            return False
        return ip_address(probe.getsockname()[0]) in network


def _is_local(network: IPv4Network) -> bool:
    """True if packets to the broadcast address of this network do not reach strangers."""
    if network.prefixlen > 30:  # it has no broadcast address
        return False
    return network.is_private or network.is_link_local or _is_own(network)


def _is_own(network: IPv4Network) -> bool:
    """True if the broadcast address is one of this computer's networks: the kernel refuses a connection to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(network.broadcast_address), _PORT))
        except PermissionError:
            return True
        except OSError:  # no route leads there
            return False
    return False


def _open(network: IPv4Network | IPv6Network) -> socket.socket:
    opened = socket.socket(socket.AF_INET if network.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    return opened
