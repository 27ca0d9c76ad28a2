"""The network card: our facts against those of the system."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from loopline_shared.protocol.host_link import HostLink
from loopline_worker.host.network_card import host_link

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth1\t00000000\t0101020A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t00000000\t0101010A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def card(address: str, netmask: str | None) -> SimpleNamespace:
        return SimpleNamespace(family=socket.AF_INET, address=address, netmask=netmask)

    addresses = {
        "eth0": [SimpleNamespace(family=17, address="02:fc", netmask=None), card("10.1.1.7", "255.255.255.0")],
        "eth1": [card("10.2.1.7", "255.255.0.0")],
        "tun0": [card("10.9.9.9", None)],
    }
    stats = {"eth0": SimpleNamespace(speed=100), "eth1": SimpleNamespace(speed=0)}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)


@pytest.mark.usefixtures("cards")
def test_subnet_gateway_and_speed_of_the_card_that_has_the_address(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    routes.write_text(ROUTES)
    assert host_link("10.1.1.7", "10.1.1.1", routes) == HostLink("10.1.1.0/24", "10.1.1.1", 12.5e6, has_master=True)
    assert host_link("10.2.1.7", "10.1.1.1", routes) == HostLink("10.2.0.0/16", "10.2.1.1", None)
    assert host_link("10.2.1.7", "the-lab", tmp_path / "none") == HostLink("10.2.0.0/16", "", None)
    routes.write_text("Iface\neth1 x y\n")
    assert host_link("10.2.1.7", "", routes) == HostLink("10.2.0.0/16", "", None)
    assert host_link("10.9.9.9", "", routes) is None
    assert host_link("10.3.3.3", "", routes) is None
    assert host_link("", "", routes) is None


def test_this_computer_has_a_loopback() -> None:
    assert host_link("127.0.0.1", "127.0.0.1") == HostLink("127.0.0.0/8", "", None, has_master=True)
