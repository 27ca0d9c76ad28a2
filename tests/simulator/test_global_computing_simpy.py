"""A whole scenario against SimPy: the same arrivals and sizes, so the same moment for every step of every request."""

from collections.abc import Iterator
from typing import Any

import pytest
import simpy

from loopline_simulator.papers.global_computing.laws import draws
from loopline_simulator.papers.global_computing.queueing_world import QueueingWorld
from loopline_simulator.papers.global_computing.scenario import KB, QueueingScenario, RequestsPart
from loopline_simulator.papers.global_computing.traffic import Packets
from loopline_simulator.streams import stream

Steps = Iterator[simpy.Event]

SCENARIO = QueueingScenario.model_validate(
    {
        "title": "two clients at one site, one elsewhere, two servers",
        "completions": 40,
        "program": {"kind": "custom", "work_mop": 300, "out_bytes": 950_000, "back_bytes": 310_000},
        "requests": {"pause_s": 1},
        "clients": [{"name": "a", "site": "x"}, {"name": "b", "site": "x"}, {"name": "c"}],
        "servers": [
            {"name": "s", "speed_mops": 100, "utilisation": 0.3},
            {"name": "t", "speed_mops": 300, "utilisation": 0.1, "job_mop": 50},
        ],
        "networks": [
            {"sites": ["x"], "throughput_kb_s": 700, "latency_s": 0.3},
            {"sites": ["c"], "throughput_kb_s": 300},
        ],
    }
)


class Link:
    """A network, packet by packet."""

    def __init__(self, env: simpy.Environment, seed: int, site: str, server: str, way: str) -> None:
        part, size = SCENARIO.network(site, server), SCENARIO.packet_kb * KB
        rate = part.traffic.rate(part.traffic_bytes_s, stream(seed, "traffic", site, server, way))
        others = Packets(rate, part.traffic_bytes_s, size, part.sizes, seed, ("packets", site, server, way))
        self.env, self.inside, self.places = env, 0, part.places(SCENARIO.packet_kb)
        self.wire, self.bandwidth = simpy.Resource(env), part.bandwidth_kb_s * KB
        env.process(self._others(others))

    def offer(self, size: float) -> simpy.Process | None:
        if self.inside == self.places:
            return None
        self.inside += 1
        return self.env.process(self._carry(size, self.wire.request()))

    def _carry(self, size: float, turn: Any) -> Steps:
        yield turn
        yield self.env.timeout(size / self.bandwidth)
        self.wire.release(turn)
        self.inside -= 1

    def _others(self, packets: Packets) -> Steps:
        number = 0
        while True:
            times, sizes = packets.window(number)
            for at, size in zip(times, sizes.tolist(), strict=True):
                yield self.env.timeout(at - self.env.now)
                self.offer(size)
            number += 1


class ByHand:
    """The scenario under GRR."""

    def __init__(self, seed: int) -> None:
        self.env, self.seed, self.turn = simpy.Environment(), seed, 0
        self.ended: list[list[float]] = []
        self.enough = self.env.event()
        self.cpus = [simpy.Resource(self.env) for _ in SCENARIO.servers]
        self.links = {
            (site, number, way): Link(self.env, seed, site, part.name, way)
            for site in ("x", "c")
            for number, part in enumerate(SCENARIO.servers)
            for way in ("out", "back")
        }
        for number, part in enumerate(SCENARIO.servers):
            mean = part.job_mop / part.speed_mops / part.utilisation
            every = draws(part.intervals, mean, stream(seed, "jobs", part.name))
            sizes = draws(part.sizes, part.job_mop, stream(seed, "sizes", part.name))
            self.env.process(self._jobs(number, every, sizes))
        for client in SCENARIO.clients:
            self.env.process(self._client(client.name, client.site or client.name))
        self.env.run(self.enough)

    def _jobs(self, server: int, every: Iterator[float], sizes: Iterator[float]) -> Steps:
        while True:
            yield self.env.timeout(next(every))
            self.env.process(self._compute(server, next(sizes)))

    def _compute(self, server: int, work: float) -> Steps:
        with self.cpus[server].request() as turn:
            yield turn
            yield self.env.timeout(work / SCENARIO.servers[server].speed_mops)

    def _client(self, name: str, site: str) -> Steps:
        client = next(client for client in SCENARIO.clients if client.name == name)
        every = draws(SCENARIO.requests.intervals, SCENARIO.interval_s(client), stream(self.seed, "client", name))
        lines = {way: (simpy.Resource(self.env), self._gaps(name, way)) for way in ("out", "back")}
        while True:
            yield self.env.timeout(next(every))
            self.env.process(self._request(site, self.turn % 2, lines))
            self.turn += 1

    def _gaps(self, name: str, way: str) -> Iterator[float]:
        return draws(SCENARIO.packet_intervals, SCENARIO.packet_kb / 1500, stream(self.seed, "line", name, way))

    def _request(self, site: str, server: int, lines: dict[str, tuple[simpy.Resource, Iterator[float]]]) -> Steps:
        moments = [self.env.now]
        yield self.env.process(self._send(self.links[site, server, "out"], 10, *lines["out"]))
        moments.append(self.env.now)
        yield self.env.process(self._compute(server, 300.0))
        moments.append(self.env.now)
        yield self.env.process(self._send(self.links[site, server, "back"], 4, *lines["back"]))
        self.ended.append([*moments, self.env.now])
        if len(self.ended) == SCENARIO.completions:
            self.enough.succeed()

    def _send(self, link: Link, packets: int, line: simpy.Resource, gaps: Iterator[float]) -> Steps:
        last = None
        with line.request() as turn:
            yield turn
            for _ in range(packets):
                last = None
                while last is None:
                    yield self.env.timeout(next(gaps))
                    last = link.offer(SCENARIO.packet_kb * KB)
        assert last is not None
        yield last


@pytest.mark.parametrize("seed", [1, 2])
def test_simpy_finds_the_same_moments(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "loopline_simulator.papers.global_computing.network._MEMORY", 1e12
    )  # SimPy skips nothing either
    world = QueueingWorld(SCENARIO, "GRR", seed)
    world.run()
    ours = [[r.issued, r.arrived, r.computed, r.ended] for r in world.ended]
    theirs = ByHand(seed).ended
    assert len(ours) == len(theirs) == SCENARIO.completions
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.campaign
def test_arrived_job_is_no_longer_promised() -> None:
    world = QueueingWorld(SCENARIO.model_copy(update={"requests": RequestsPart(pause_s=10_000)}), "DWR", 1)
    world.run()
    assert [world.promised_s(server) for server in (0, 1)] == pytest.approx([0, 0])
