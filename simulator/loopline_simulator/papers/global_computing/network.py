"""A one-way network between a site and a server, and the queue of a client's packets that wait to enter it.

Section 3.1.2 of the paper: first come, first served, at the bandwidth; room for N packets, including the one being
sent. A foreign packet that finds it full is lost, a request's packet is tried again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from loopline_simulator.kernel import Kernel
from loopline_simulator.papers.global_computing.traffic import Packets

_MEMORY = 40.0
"""Relaxation times until the distribution of the queue's length is independent of its past (to e ** -40)."""


class PacketNetwork:
    """A network that advances on demand: foreign packets since the last call are made up for, as far back as they
    matter.
    """

    def __init__(self, packets: Packets, bandwidth: float, places: int, packet_bytes: float) -> None:
        self.places = places
        self.passed = 0  # foreign packets
        self._packets, self._bandwidth = packets, bandwidth
        slowest = 2 * (1 - math.cos(math.pi / (places + 1))) * bandwidth / packet_bytes  # of M/M/1/N at full load
        self._memory_s = _MEMORY / slowest
        self._leaving: deque[float] = deque()  # when each packet in it will have left
        self._times: list[float] = []
        self._sizes = np.empty(0)  # few of them are ever read
        self._index, self._window, self._seen = 0, -1, 0.0

    def offer(self, now: float, size: float) -> float | None:
        """Return when a packet of ``size`` bytes that arrives now will leave; None if the network is full."""
        self._advance(now)
        leaving = self._leaving
        if len(leaving) >= self.places:
            return None
        leaves = (leaving[-1] if leaving else now) + size / self._bandwidth
        leaving.append(leaves)
        return leaves

    @property
    def full_until(self) -> float:
        """Time when the packet being sent will leave: until then, a full network stays full."""
        return self._leaving[0]

    def _advance(self, now: float) -> None:
        """Admit the foreign packets that have arrived by ``now``, and remove completed ones."""
        if now - self._seen > self._memory_s:
            self._skip_to(now - self._memory_s)
        self._seen = now
        while self._window < 0 or (self._window + 1) * self._packets.window_s <= now:
            self._pass(now)
            self._open(self._window + 1)
        self._pass(now)
        leaving = self._leaving
        while leaving and leaving[0] <= now:
            leaving.popleft()

    def _pass(self, now: float) -> None:
        times, sizes, leaving, places, bandwidth = (
            self._times, self._sizes, self._leaving, self.places, self._bandwidth
        )  # fmt: skip
        index = began = self._index
        end = len(times)
        while index < end and (at := times[index]) <= now:
            while leaving and leaving[0] <= at:
                leaving.popleft()
            if len(leaving) < places:
                leaving.append((leaving[-1] if leaving else at) + sizes.item(index) / bandwidth)
                index += 1
            else:  # packets that come before the next one leaves are lost
                index = bisect_left(times, leaving[0], index + 1)
        self.passed += index - began
        self._index = index

    def _skip_to(self, start: float) -> None:
        number = int(start // self._packets.window_s)
        if number > self._window:
            self._open(number)
        self._index = max(self._index, bisect_right(self._times, start))

    def _open(self, number: int) -> None:
        self._window, self._index = number, 0
        self._times, self._sizes = self._packets.window(number)


class PacketQueue:
    """Packets that a client sends or receives, in order.

    The packet at the head tries to enter its network at each moment of a Poisson process (or whatever ``gaps`` are).
    """

    def __init__(self, kernel: Kernel, gaps: Iterator[float], packet_bytes: float) -> None:
        self._kernel, self._gaps, self._packet_bytes = kernel, gaps, packet_bytes
        self._waiting: deque[_Data] = deque()
        self._since = 0.0

    def send(
        self, network: PacketNetwork, packets: int, arrived: Callable[[], None], sent: Callable[[float], None]
    ) -> None:
        """Send ``packets`` through the network.

        ``sent`` is called for each with the time that it spent at the head, ``arrived`` when the last has left the
        network.
        """
        self._waiting.append(_Data(network, packets, arrived, sent))
        if len(self._waiting) == 1:
            self._turn()

    def _turn(self) -> None:
        """Begin with the packet that is now at the head."""
        self._since = self._kernel.now
        self._try_later()

    def _try_later(self, full_until: float = 0.0) -> None:
        """Try again at the next moment of the process after ``full_until``: the network is full until then."""
        at = self._kernel.now + next(self._gaps)
        while at < full_until:
            at += next(self._gaps)
        self._kernel.at(at, self._try)

    def _try(self) -> None:
        data = self._waiting[0]
        leaves = data.network.offer(self._kernel.now, self._packet_bytes)
        if leaves is None:
            self._try_later(data.network.full_until)
            return
        data.sent(self._kernel.now - self._since)
        data.packets -= 1
        if not data.packets:
            self._waiting.popleft()
            self._kernel.at(leaves, data.arrived)
        if self._waiting:
            self._turn()


@dataclass(slots=True)
class _Data:
    network: PacketNetwork
    packets: int  # still to enter the network
    arrived: Callable[[], None]
    sent: Callable[[float], None]
