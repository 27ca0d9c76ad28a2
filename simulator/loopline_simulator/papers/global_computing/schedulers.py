"""Who names a server for each request: the paper's three (section 5), and two that know the network.

A scheduler sees a ``ServerView`` at the moment of the request. One algorithm a class, one line in ``SCHEDULERS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from loopline_simulator.papers.global_computing.servers import Server
from loopline_simulator.streams import Generator


class ServerView(Protocol):
    """What there is to be known."""

    @property
    def servers(self) -> Sequence[Server]: ...

    @property
    def first_server(self) -> int:
        """Where going round begins."""

    def computing_s(self, client: int, server: int) -> float:
        """J / c: the request's work alone on that server."""

    def promised_s(self, server: int) -> float:
        """R: the work of requests sent to it that have not yet arrived there."""

    def transfer_s(self, client: int, server: int) -> float:
        """D: the request's data, there and back, at the throughput that the scenario states."""

    def seen_transfer_s(self, client: int, server: int) -> float:
        """D: the same at the pace of the packets lately sent; before the first, at full bandwidth."""


class RequestScheduler(Protocol):
    def choose(self, client: int, grid: ServerView) -> int:
        """The server for a request of the client's, now."""


class LocalRoundRobin:
    """LRR: each client goes round the servers by itself, all from the same one (the worst case)."""

    def __init__(self, random: Generator) -> None:
        self._turns: Counter[int] = Counter()

    def choose(self, client: int, grid: ServerView) -> int:
        self._turns[client] += 1
        return (grid.first_server + self._turns[client] - 1) % len(grid.servers)


class GlobalRoundRobin:
    """GRR: the servers in turn, whoever asks."""

    def __init__(self, random: Generator) -> None:
        self._local = LocalRoundRobin(random)

    def choose(self, client: int, grid: ServerView) -> int:
        return self._local.choose(0, grid)


class LeastLoad:
    """LOAD: least (jobs there + 1) / speed; of equals the first. It knows nothing of networks."""

    def __init__(self, random: Generator) -> None: ...

    def choose(self, client: int, grid: ServerView) -> int:
        loads = [(server.jobs + 1) / server.speed for server in grid.servers]
        return loads.index(min(loads))


class ExpectedTurnaround:
    """Least expected turnaround T = J / c + D + W + R, as in the paper on dynamic load sharing; of equals any. W, the
    work that the server has before it, is of this moment, so R is left with what is on its way. What the client's own
    data waits for before it is sent is the same wherever it goes, and therefore left out.
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
    """The same, told nothing about networks: D is by how packets got on lately."""

    def _delay_s(self, client: int, server: int, grid: ServerView) -> float:
        return grid.seen_transfer_s(client, server)


SCHEDULERS: dict[str, Callable[[Generator], RequestScheduler]] = {
    "LRR": LocalRoundRobin,
    "GRR": GlobalRoundRobin,
    "LOAD": LeastLoad,
    "DWR": ExpectedTurnaround,
    "DWR-seen": ObservedTurnaround,
}
