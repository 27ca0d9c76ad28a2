"""A lab's network in namespaces of this computer: two switches with a narrow cable between, and a host for each
worker.

Needs root and iproute2. Everything is in namespaces of its own, whose names begin with ``ll`` and this process's
number; nothing touches the host's network. Links are shaped by tbf in both directions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_NETWORK = "10.78.0"
_BURST, _QUEUE = "32kb", "100ms"


def obstacle() -> str:
    """Return why no lab can be built here; empty if it can."""
    if os.geteuid():
        return "namespaces need root"
    return "" if shutil.which("ip") and shutil.which("tc") else "iproute2 is not installed"


@dataclass
class Lab:
    """Namespaces: the master's and half of the workers' at switch A, the others at B. Rates are in Mbit/s.

    ``mixed``: neighbours in name and address are at different switches.
    """

    workers: int
    edge: float
    between: float
    mixed: bool = False
    prefix: str = field(default_factory=lambda: f"ll{os.getpid()}")

    @property
    def master(self) -> str:
        """The namespace of the master."""
        return f"{self.prefix}m"

    @property
    def names(self) -> list[str]:
        """The namespaces of the workers."""
        return [f"{self.prefix}w{number}" for number in range(1, self.workers + 1)]

    def address(self, name: str) -> str:
        """Return the address of a namespace."""
        return f"{_NETWORK}.{1 if name == self.master else 10 + int(name.rpartition('w')[2])}"

    def switch(self, number: int) -> str:
        """Return the switch of a worker, A or B; they are numbered from 0."""
        return "AB"[number % 2] if self.mixed else "AB"[number >= self.workers // 2]

    def network_toml(self) -> str:
        """Return what an operator would write down."""
        text = "[switches.core]\n"
        for switch in "AB":
            hosts = [name for number, name in enumerate(self.names) if self.switch(number) == switch]
            hosts += ["master"] if switch == "A" else []
            text += f'[switches.{switch}]\nabove = "core"\ncapacity = "{self.between:g} Mbit/s"\n'
            text += f'hosts = {json.dumps(hosts)}\nedge = "{self.edge:g} Mbit/s"\n'
        return text

    def change_between(self, mbit: float) -> None:
        """Give the cable between the switches another rate."""
        for device in ("ab", "ba"):
            _shape(f"{self.prefix}s", device, mbit)

    def cut_off(self, name: str) -> None:
        """Pull the cable of a host at its switch."""
        _run("ip", "link", "set", self._port(name), "down", inside=f"{self.prefix}s")

    @contextmanager
    def built(self) -> Iterator[None]:
        """Have the network while the context lasts."""
        switches = f"{self.prefix}s"
        try:
            self._build_switches(switches)
            self._build_host(switches, self.master, "A")
            for number, name in enumerate(self.names):
                self._build_host(switches, name, self.switch(number))
            yield
        finally:
            for name in [*self.names, self.master, switches]:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def sent_bytes(self) -> dict[str, int]:
        """Return the bytes sent by the master, and those over the cable between the switches, each way."""
        switches = f"{self.prefix}s"
        devices = {"master": (self.master, "eth0"), "A->B": (switches, "ab"), "B->A": (switches, "ba")}
        return {name: _sent(*device) for name, device in devices.items()}

    def _build_switches(self, switches: str) -> None:
        _run("ip", "netns", "add", switches)
        _run("ip", "link", "add", "ab", "type", "veth", "peer", "name", "ba", inside=switches)
        for switch, device in (("A", "ab"), ("B", "ba")):
            _run("ip", "link", "add", f"br{switch}", "type", "bridge", inside=switches)
            _run("ip", "link", "set", f"br{switch}", "up", inside=switches)
            _run("ip", "link", "set", device, "master", f"br{switch}", "up", inside=switches)
            _shape(switches, device, self.between)

    def _build_host(self, switches: str, name: str, switch: str) -> None:
        port = self._port(name)
        _run("ip", "netns", "add", name)
        end = ["type", "veth", "peer", "name", "eth0", "netns", name]
        _run("ip", "link", "add", port, *end, inside=switches)
        _run("ip", "link", "set", port, "master", f"br{switch}", "up", inside=switches)
        _run("ip", "addr", "add", f"{self.address(name)}/24", "brd", "+", "dev", "eth0", inside=name)
        for device in ("lo", "eth0"):
            _run("ip", "link", "set", device, "up", inside=name)
        _shape(name, "eth0", self.edge)
        _shape(switches, port, self.edge)

    def _port(self, name: str) -> str:
        return "p" + name.removeprefix(self.prefix)


def inside(name: str) -> list[str]:
    """Return what comes before a command that is to run in a namespace."""
    return ["ip", "netns", "exec", name]


def _run(*command: str, inside: str = "") -> str:
    place = ["ip", "netns", "exec", inside] if inside else []
    return subprocess.run([*place, *command], check=True, capture_output=True, text=True).stdout


def _shape(name: str, device: str, mbit: float) -> None:
    rate = ["rate", f"{mbit:g}mbit", "burst", _BURST, "latency", _QUEUE]
    _run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *rate, inside=name)


def _sent(name: str, device: str) -> int:
    found = json.loads(_run("ip", "-s", "-j", "link", "show", device, inside=name))
    return int(found[0]["stats64"]["tx"]["bytes"])
