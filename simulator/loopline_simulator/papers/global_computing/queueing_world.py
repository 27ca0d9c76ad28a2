"""A run: requests travel from the client through a network to a server, and through a network back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from loopline_simulator.kernel import Kernel
from loopline_simulator.papers.global_computing.laws import draws
from loopline_simulator.papers.global_computing.network import PacketNetwork, PacketQueue
from loopline_simulator.papers.global_computing.scenario import KB, ClientPart, QueueingScenario, ServerPart, site_of
from loopline_simulator.papers.global_computing.schedulers import SCHEDULERS
from loopline_simulator.papers.global_computing.servers import Server
from loopline_simulator.papers.global_computing.traffic import Packets
from loopline_simulator.streams import stream

_NEWS = 0.05
"""Weight of the latest packet in the estimate of a network, once there have been many."""
_WAYS = ("out", "back")


@dataclass(slots=True)
class Request:
    """A request and its times in seconds."""

    client: int
    server: int
    issued: float
    _: KW_ONLY
    arrived: float = 0.0  # arrival of its data at the server
    computed: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Lately:
    """A mean that forgets old values exponentially; before the first value, a prior."""

    mean: float
    seen: int = 0

    def learn(self, value: float) -> None:
        self.seen += 1
        self.mean += max(1 / self.seen, _NEWS) * (value - self.mean)


class QueueingWorld:
    """Clients, networks and servers in virtual time, seen by a scheduler as a ``schedulers.ServerView``.

    Every object draws from its own stream.
    """

    def __init__(self, scenario: QueueingScenario, scheduler: str, seed: int) -> None:
        self.kernel = Kernel()
        self.ended: list[Request] = []
        self.servers: list[Server] = []
        self._scenario, self._seed = scenario, seed
        self._scheduler = SCHEDULERS[scheduler](stream(seed, "scheduler"))
        for part in scenario.servers:
            self._add_server(part)
        names = [part.name for part in scenario.servers]
        self.first_server = names.index(scenario.round_robin_from) if scenario.round_robin_from else 0
        self._promised_s = [0.0] * len(names)
        self._sites = [site_of(client) for client in scenario.clients]
        self._networks = {
            (site, number, way): self._network(site, name, way)
            for site in dict.fromkeys(self._sites)
            for number, name in enumerate(names)
            for way in _WAYS
        }
        self._lately = {
            (site, number): Lately(scenario.packet_kb / scenario.network(site, name).bandwidth_kb_s)
            for site in self._sites
            for number, name in enumerate(names)
        }
        self._lines = [{way: self._line(client, way) for way in _WAYS} for client in scenario.clients]
        for number, client in enumerate(scenario.clients):
            self._add_client(number, client)

    def run(self) -> None:
        """Run until the last completion that counts."""
        try:
            self.kernel.run()
        except _Enough:
            return

    @property
    def events(self) -> int:
        """Number of calls made and of foreign packets that passed."""
        return self.kernel.events + sum(network.passed for network in self._networks.values())

    def computing_s(self, client: int, server: int) -> float:
        return self._work(client) / self.servers[server].speed

    def promised_s(self, server: int) -> float:
        return self._promised_s[server]

    def transfer_s(self, client: int, server: int) -> float:
        network = self._scenario.network(self._sites[client], self._scenario.servers[server].name)
        return self._packets(client) * self._scenario.packet_kb / network.throughput_kb_s

    def seen_transfer_s(self, client: int, server: int) -> float:
        return self._packets(client) * self._lately[self._sites[client], server].mean

    def _work(self, client: int) -> float:
        return self._scenario.program_of(self._scenario.clients[client]).work_mop

    def _packets(self, client: int) -> int:
        return sum(self._scenario.packets_of(self._scenario.clients[client]))

    # Parts

    def _add_server(self, part: ServerPart) -> None:
        """Add a server and the jobs of others on it: equation (9)."""
        server = part.discipline.server(self.kernel, part.speed_mops)
        self.servers.append(server)
        if not part.utilisation:
            return
        mean_s = part.job_mop / part.speed_mops / part.utilisation
        intervals = draws(part.intervals, mean_s, stream(self._seed, "jobs", part.name))
        sizes = draws(part.sizes, part.job_mop, stream(self._seed, "sizes", part.name))

        def come() -> None:
            server.accept(next(sizes), _nothing)
            self.kernel.at(self.kernel.now + next(intervals), come)

        self.kernel.at(next(intervals), come)

    def _network(self, site: str, server: str, way: str) -> PacketNetwork:
        part, packet_bytes = self._scenario.network(site, server), self._scenario.packet_kb * KB
        mean = part.traffic_bytes_s
        rate = part.traffic.rate(mean, stream(self._seed, "traffic", site, server, way))
        others = Packets(rate, mean, packet_bytes, part.sizes, self._seed, name=("packets", site, server, way))
        return PacketNetwork(others, part.bandwidth_kb_s * KB, part.places(self._scenario.packet_kb), packet_bytes)

    def _line(self, client: ClientPart, way: str) -> PacketQueue:
        """Return the client's queue, which sends at the rate of equation (4): packet size over its fastest
        bandwidth.
        """
        scenario = self._scenario
        bandwidth = max(scenario.network(site_of(client), part.name).bandwidth_kb_s for part in scenario.servers)
        random = stream(self._seed, "line", client.name, way)
        gaps = draws(scenario.packet_intervals, scenario.packet_kb / bandwidth, random)
        return PacketQueue(self.kernel, gaps, scenario.packet_kb * KB)

    def _add_client(self, number: int, client: ClientPart) -> None:
        law = (client.requests or self._scenario.requests).intervals
        intervals = draws(law, self._scenario.interval_s(client), stream(self._seed, "client", client.name))

        def issue() -> None:
            self.kernel.at(self.kernel.now + next(intervals), issue)
            self._send(number)

        self.kernel.at(next(intervals), issue)

    # The path of a request

    def _send(self, client: int) -> None:
        server = self._scheduler.choose(client, self)
        request = Request(client, server, self.kernel.now)
        self._promised_s[server] += self.computing_s(client, server)
        self._transfer(request, "out", self._compute)

    def _transfer(self, request: Request, way: str, then: Callable[[Request], None]) -> None:
        site, client = self._sites[request.client], self._scenario.clients[request.client]
        network, packets = self._networks[site, request.server, way], self._scenario.packets_of(client)
        learn = self._lately[site, request.server].learn
        self._lines[request.client][way].send(network, packets[_WAYS.index(way)], partial(then, request), learn)

    def _compute(self, request: Request) -> None:
        request.arrived = self.kernel.now
        self._promised_s[request.server] -= self.computing_s(request.client, request.server)
        self.servers[request.server].accept(self._work(request.client), partial(self._answer, request))

    def _answer(self, request: Request) -> None:
        request.computed = self.kernel.now
        self._transfer(request, "back", self._end)

    def _end(self, request: Request) -> None:
        request.ended = self.kernel.now
        self.ended.append(request)
        if len(self.ended) == self._scenario.completions:
            raise _Enough


class _Enough(Exception):  # noqa: N818  # not an error
    """Signal that the last completion to count has come."""


def _nothing() -> None:
    """Ignore the end of another user's job."""
