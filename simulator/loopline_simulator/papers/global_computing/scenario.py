"""A scenario: clients, networks, servers and programs. It is written in TOML; see docs/global-computing.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from loopline_shared.plain_words import meant
from loopline_simulator.kernel import Kernel
from loopline_simulator.papers.global_computing import servers
from loopline_simulator.papers.global_computing.laws import Exponential, Law
from loopline_simulator.papers.global_computing.part import Name, Part, Positive, Seconds
from loopline_simulator.papers.global_computing.programs import Program, packets
from loopline_simulator.papers.global_computing.schedulers import SCHEDULERS
from loopline_simulator.papers.global_computing.traffic import Poisson, Traffic

KB = 1000.0
Several = Annotated[list[Name], Field(min_length=1, max_length=1000)]


class FirstCome(Part):
    """Queueing discipline: one job after another (the paper's section 3.1.3)."""

    kind: Literal["first-come"] = "first-come"

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.FirstComeServer(kernel, speed)


class ProcessorSharing(Part):
    """Queueing discipline: all jobs at once (future work in the paper)."""

    kind: Literal["processor-sharing"] = "processor-sharing"

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.ProcessorSharingServer(kernel, speed)


class RoundRobin(Part):
    """Queueing discipline: jobs in turn, for a quantum each (future work in the paper)."""

    kind: Literal["round-robin"] = "round-robin"
    quantum_s: Positive

    def server(self, kernel: Kernel, speed: float) -> servers.Server:
        return servers.RoundRobinServer(kernel, speed, self.quantum_s)


Discipline = Annotated[FirstCome | ProcessorSharing | RoundRobin, Field(discriminator="kind")]


class RequestsPart(Part):
    """Frequency of a client's requests: the mean interval is the expected time of a request plus ``pause_s``.

    The expected time is ``expected_s`` or, by default, the time alone on the client's worst server (sections 4.1 and
    5.1).
    """

    intervals: Law = Exponential()
    pause_s: Seconds
    expected_s: Seconds | None = None


class ClientPart(Part):
    """A client. Clients of one ``site`` share its networks; without a site, the client is a site of its own."""

    name: Name
    site: Name | None = None
    program: Program | None = None
    requests: RequestsPart | None = None


class ServerPart(Part):
    """A server. Jobs of others take the share ``utilisation`` of its time.

    Those jobs come as ``intervals`` and ``sizes`` say, with a mean of ``job_mop``.
    """

    name: Name
    speed_mops: Positive
    discipline: Discipline = FirstCome()
    utilisation: Annotated[float, Field(ge=0, lt=1)]
    job_mop: Positive = 10.0
    intervals: Law = Exponential()
    sizes: Law = Exponential()


class NetworkPart(Part):
    """Networks that join each of ``sites`` with each of ``servers`` (default: all), each pair by its own two queues.

    ``throughput_kb_s`` is the part of the bandwidth that a request gets: the rest is traffic.
    """

    sites: Several | None = None
    servers: Several | None = None
    bandwidth_kb_s: Positive = 1500.0
    throughput_kb_s: Positive
    latency_s: Positive = 0.032
    traffic: Traffic = Poisson()
    sizes: Law = Exponential()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.throughput_kb_s > self.bandwidth_kb_s:
            raise ValueError(f"throughput_kb_s ({self.throughput_kb_s:g}) is more than the bandwidth")
        return self

    def joins(self, site: str, server: str) -> bool:
        return site in (self.sites or [site]) and server in (self.servers or [server])

    def places(self, packet_kb: float) -> int:
        """Return N of equation (8), including the packet being sent."""
        return max(2, round(self.latency_s * self.bandwidth_kb_s / packet_kb))

    @property
    def traffic_bytes_s(self) -> float:
        """Equation (5), in bytes."""
        return (self.bandwidth_kb_s / self.throughput_kb_s - 1) * self.bandwidth_kb_s * KB


class QueueingScenario(Part):
    """A setting. A run ends with the completion of the ``completions``-th request, and counts the requests
    up to it.
    """

    title: Name
    assumptions: list[str] = Field(default=[])
    completions: Annotated[int, Field(ge=1, le=10**6)] = 50
    packet_kb: Positive = 100.0
    packet_intervals: Law = Exponential()
    program: Program
    requests: RequestsPart
    clients: Annotated[list[ClientPart], Field(min_length=1, max_length=1000)]
    servers: Annotated[list[ServerPart], Field(min_length=1, max_length=1000)]
    networks: Annotated[list[NetworkPart], Field(min_length=1, max_length=1000)]
    schedulers: Several = Field(default=list(SCHEDULERS))
    round_robin_from: Name | None = None

    @field_validator("schedulers")
    @classmethod
    def _are_known(cls, names: list[str]) -> list[str]:
        for name in names:
            known_scheduler(name)
        return names

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        servers, sites = _unique("server", self.servers), {site_of(client) for client in self.clients}
        _unique("client", self.clients)
        for network in self.networks:
            _all_known("site", network.sites or [], sites)
            _all_known("server", network.servers or [], servers)
        _all_known("server", [self.round_robin_from] if self.round_robin_from else [], servers)
        for site in sorted(sites):
            for server in servers:
                self.network(site, server)
        return self

    def network(self, site: str, server: str) -> NetworkPart:
        """Return the network that joins site and server. Raises ValueError unless there is exactly one."""
        found = [network for network in self.networks if network.joins(site, server)]
        if len(found) != 1:
            how_many = f"{len(found)} networks join" if found else "no network joins"
            raise ValueError(f"{how_many} the site {site} and the server {server}: there must be one")
        return found[0]

    def program_of(self, client: ClientPart) -> Program:
        return client.program or self.program

    def packets_of(self, client: ClientPart) -> tuple[int, int]:
        """Return the number of packets there and back."""
        program, size = self.program_of(client), self.packet_kb * KB
        return packets(program.out_bytes, size), packets(program.back_bytes, size)

    def interval_s(self, client: ClientPart) -> float:
        """Return the mean time between two requests of this client."""
        requests = client.requests or self.requests
        worst = max(self._alone_s(client, server) for server in self.servers)
        return (worst if requests.expected_s is None else requests.expected_s) + requests.pause_s

    def _alone_s(self, client: ClientPart, server: ServerPart) -> float:
        program, network = self.program_of(client), self.network(site_of(client), server.name)
        sending = (program.out_bytes + program.back_bytes) / (network.throughput_kb_s * KB)
        return float(sending + program.work_mop / server.speed_mops)

    def with_traffic(self, traffic: Traffic | None) -> Self:
        """Return the scenario with this traffic on every network; unchanged if None."""
        if traffic is None:
            return self
        networks = [network.model_copy(update={"traffic": traffic}) for network in self.networks]
        return self.model_copy(update={"networks": networks})


def site_of(client: ClientPart) -> str:
    return client.site or client.name


def known_scheduler(name: str) -> str:
    """Return the name. Raises ValueError with the nearest name if there is no such scheduler."""
    if name not in SCHEDULERS:
        raise ValueError(f"there is no scheduler {name!r}: {meant(name, SCHEDULERS)}")
    return name


def _unique(kind: str, parts: Sequence[ClientPart | ServerPart]) -> list[str]:
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the {kind}s are called {name!r}")
    return names


def _all_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}: {meant(name, known)}")
