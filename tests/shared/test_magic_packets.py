"""Magic packets between network namespaces: a lab and an office, each with a switch, and a router between them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loopline_shared.power.magic_packets import PACKETS, is_in, magic_packet, send

CARD = "3c:52:82:0a:11:f0"
LAB, OFFICE, LAB6 = "10.77.1.0/24", "10.77.2.0/24", "fd77:1::/64"
LISTENER = """
import socket, sys
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
frames.bind(("eth0", 0))
frames.settimeout(60)
print("ready", flush=True)
count, content = 0, bytes.fromhex(sys.argv[1])
while not (frame := frames.recv(2048)).endswith(b"the end"):
    count += frame.endswith(content)
print(count)
"""
SEND = """
import sys
from loopline_shared.power.magic_packets import is_in, send
print(is_in(sys.argv[2]))
send(*sys.argv[1:])
"""
END = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
    last.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    last.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    last.sendto(b"the end", ("255.255.255.255", 9))
"""


def ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no network namespaces here: ip {words}: {done.stderr.strip()}")


class Lab:
    """Computers ``pc``, ``asleep`` in the lab, ``far`` in the office, and ``router``, which has a card in each."""

    def __init__(self) -> None:
        self._mark = f"ll{os.getpid()}"
        self.spaces = [self._space(name) for name in ("switch1", "switch2", "pc", "asleep", "far", "end2", "router")]

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def plug(self) -> None:
        for space in self.spaces:
            ip(f"netns add {space}")
        for number in (1, 2):
            ip(f"-n {self._space(f'switch{number}')} link add switch type bridge")
            ip(f"-n {self._space(f'switch{number}')} link set switch up")
        self._cable("pc", "eth0", 1, "10.77.1.2/24")
        self._cable("asleep", "eth0", 1, "")
        self._cable("far", "eth0", 2, "10.77.2.2/24")
        self._cable("end2", "eth0", 2, "")
        self._cable("router", "eth0", 1, "10.77.1.1/24")
        self._cable("router", "eth1", 2, "10.77.2.1/24")
        self.run("router", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        ip(f"-n {self._space('pc')} address add fd77:1::2/64 dev eth0 nodad")
        ip(f"-n {self._space('far')} route add default via 10.77.2.1")

    def unplug(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def _cable(self, name: str, card: str, switch: int, address: str) -> None:
        space, port = self._space(name), f"{name}-{card}"
        ip(f"-n {space} link add {card} type veth peer name {port} netns {self._space(f'switch{switch}')}")
        ip(f"-n {self._space(f'switch{switch}')} link set {port} master switch up")
        ip(f"-n {space} link set {card} up")
        if address:
            ip(f"-n {space} address add {address} dev {card}")

    def run(self, name: str, *words: str) -> str:
        command = ["ip", "netns", "exec", self._space(name), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def send(self, name: str, *arguments: str) -> str:
        return self.run(name, sys.executable, "-c", SEND, CARD, *arguments)

    @contextmanager
    def count(self, name: str, marker: str) -> Iterator[list[int]]:
        """Count the magic packets that come to a computer, until its neighbour ``marker`` sends a last frame."""
        command = ["ip", "netns", "exec", self._space(name), sys.executable, "-c", LISTENER]
        listener = subprocess.Popen([*command, magic_packet(CARD).hex()], stdout=subprocess.PIPE, text=True)
        assert listener.stdout
        assert listener.stdout.readline() == "ready\n"
        counted: list[int] = []
        try:
            yield counted
            self.run(marker, sys.executable, "-c", END)
            counted.append(int(listener.stdout.readline()))
        finally:
            listener.kill()
            listener.communicate()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces take root and `ip`")
    lab = Lab()
    try:
        lab.plug()
        yield lab
    finally:
        lab.unplug()


def test_packets_reach_a_computer_in_the_same_subnet(lab: Lab) -> None:
    with lab.count("asleep", "pc") as counted:
        assert lab.send("pc", LAB, "eth0") == "True"
    assert counted == [PACKETS]


def test_packets_do_not_pass_the_router(lab: Lab) -> None:
    with lab.count("asleep", "pc") as counted:
        assert lab.send("far", LAB) == "False"
    assert counted == [0]


def test_packets_of_ipv6_reach_a_computer_on_the_same_switch(lab: Lab) -> None:
    with lab.count("asleep", "pc") as counted:
        assert lab.send("pc", LAB6, "eth0") == "True"
    assert counted == [PACKETS]


def test_packets_leave_by_the_given_interface_alone(lab: Lab) -> None:
    with lab.count("asleep", "pc") as in_lab, lab.count("end2", "far") as in_office:
        assert lab.send("router", OFFICE, "eth1") == "True"
    assert (in_lab, in_office) == ([0], [PACKETS])


def test_packets_are_sent_in_a_public_network_of_this_computer(lab: Lab) -> None:
    lab.run("pc", "ip", "address", "add", "11.77.1.2/24", "dev", "eth0")
    try:
        with lab.count("asleep", "pc") as counted:
            assert lab.send("pc", "11.77.1.0/24") == "True"
        assert counted == [PACKETS]
        with pytest.raises(subprocess.CalledProcessError):
            lab.send("pc", "11.77.0.0/16")
    finally:
        lab.run("pc", "ip", "address", "delete", "11.77.1.2/24", "dev", "eth0")


@pytest.mark.parametrize("subnet", ["8.8.8.8/32", "8.8.8.0/24", "10.0.0.1/32", "224.0.0.0/4"])
def test_no_packets_are_sent_to_strangers(monkeypatch: pytest.MonkeyPatch, subnet: str) -> None:
    sent: list[object] = []
    monkeypatch.setattr(socket.socket, "sendto", lambda _, *sending: sent.append(sending))
    with pytest.raises(ValueError, match="private network"):
        send(CARD, subnet)
    assert not sent


@pytest.mark.parametrize("address", ["", "3c:52:82:0a:11", "3c:52:82:0a:11:zz"])
def test_malformed_hardware_address_is_an_error(address: str) -> None:
    with pytest.raises(ValueError):
        magic_packet(address)


def test_subnet_without_an_own_address_is_elsewhere() -> None:
    assert is_in("127.0.0.0/8")
    assert not is_in("198.51.100.0/24")
