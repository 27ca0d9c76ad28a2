"""Schedulers that choose a server for each request: the paper's three (section 5), and two that know the network.

A scheduler sees a ``ServerView`` at the moment of the request. Each algorithm is a class and a line in
``SCHEDULERS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from loopline_simulator.papers.global_computing.servers import Server
from loopline_simulator.streams import Generator


class ServerView(Protocol):
    """Knowledge that a scheduler may use."""

    @property
    def servers(self) -> Sequence[Server]: ...

    @property
    def first_server(self) -> int:
        """First server of round robin."""

    def computing_s(self, client: int, server: int) -> float:
        """Return J / c: the request's work alone on that server."""

    def promised_s(self, server: int) -> float:
        """Return R: the work of requests that are on their way to the server."""

    def transfer_s(self, client: int, server: int) -> float:
        """Return D: the transfer of the request's data, there and back, at the throughput that the scenario
        states.
        """

    def seen_transfer_s(self, client: int, server: int) -> float:
        """Return D as measured on recent packets; before the first packet, at full bandwidth."""


class RequestScheduler(Protocol):
    def choose(self, client: int, grid: ServerView) -> int:
        """Return the server for a request that the client makes now."""


class LocalRoundRobin:
    """LRR: each client takes the servers in turn, all from the same one (the worst case)."""

    def __init__(self, random: Generator) -> None:
        self._turns: Counter[int] = Counter()

    def choose(self, client: int, grid: ServerView) -> int:
        self._turns[client] += 1
        return (grid.first_server + self._turns[client] - 1) % len(grid.servers)


class GlobalRoundRobin:
    """GRR: all requests take the servers in turn."""

    def __init__(self, random: Generator) -> None:
        self._local = LocalRoundRobin(random)

    def choose(self, client: int, grid: ServerView) -> int:
        return self._local.choose(0, grid)


class LeastLoad:
    """LOAD: least (jobs there + 1) / speed; the first of equals. It ignores networks."""

    def __init__(self, random: Generator) -> None: ...

    def choose(self, client: int, grid: ServerView) -> int:
        loads = [(server.jobs + 1) / server.speed for server in grid.servers]
        return loads.index(min(loads))


class ExpectedTurnaround:
    """Least expected turnaround T = J / c + D + W + R (the paper on dynamic load sharing); a random one of equals.

    W, the server's unfinished work, is of this moment, so R is the work on its way. The wait for the client's own
    earlier data is the same for all servers, and therefore left out.
    """

    def __init__(self, random: Generator) -> None:
        self._random = random

    def choose(self, client: int, grid: ServerView) -> int:
        times = [self._turnaround_s(client, server, grid) for server in range(len(grid.servers))]
        least = [server for server, time in enumerate(times) if time == min(times)]
        return least[0] if len(least) == 1 else least[int(self._random.integers(len(least)))]

    def _turnaround_s(self, client: int, server: int, grid: ServerView) -> float:
        waiting = grid.servers[server].unfinished_s + grid.promised_s(server)
        return grid.computing_s(client, server) + self._delay_s(client, server, grid) + waiting

    def _delay_s(self, client: int, server: int, grid: ServerView) -> float:
        return grid.transfer_s(client, server)


class ObservedTurnaround(ExpectedTurnaround):
    """Least expected turnaround with D measured on recent packets."""

    def _delay_s(self, client: int, server: int, grid: ServerView) -> float:
        return grid.seen_transfer_s(client, server)


SCHEDULERS: dict[str, Callable[[Generator], RequestScheduler]] = {
    "LRR": LocalRoundRobin,
    "GRR": GlobalRoundRobin,
    "LOAD": LeastLoad,
    "DWR": ExpectedTurnaround,
    "DWR-seen": ObservedTurnaround,
}
