"""When first pieces become a sample, and which hosts' places are guesses."""

from __future__ import annotations

from collections.abc import Mapping

from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_switches
from loopline_master.core.wings.transfers.flow_sample import Pair
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.learned_network import LearnedNetwork
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import FileFlow

SIZE = 64 * 2**20


class Grid:
    """A network that learns from flows: receivers with their sources and bytes, at the times that a test says."""

    def __init__(self) -> None:
        self.samples = FlowSamples()
        self.network = LearnedNetwork(None, self.samples)
        self.links: dict[str, HostLink | None] = {}

    def look(self, now: float, flows: Mapping[Pair, int], trains: Mapping[Pair, float], file: str = "f") -> None:
        self.links |= {name: HostLink("10.0.0.0/24", "", 125e6) for pair in flows for name in pair if name != MASTER}
        told = [
            FileFlow(sha256=file, source=one, receiver=other, rate_bytes_s=1e6, have_bytes=have, size_bytes=SIZE)
            for (one, other), have in flows.items()
        ]
        if self.network.observe(now, self.links, told, (), trains):
            self.samples.learn_now(assumed_switches(self.links), {})

    def guesses(self) -> set[str]:
        event = self.network.change(0.0, self.links, [])
        assert event
        return {node.name for node in event.nodes if node.is_guess}


def test_first_pieces_become_a_sample_while_more_receivers_start() -> None:
    """Every half second another worker starts. Its own first piece is there a second later."""
    grid = Grid()
    for step in range(6):
        started = [f"w{number}" for number in range(step + 3)]
        flows = {(MASTER, name): 2**20 if name in started[:-2] else 0 for name in started}
        grid.look(100.0 + step / 2, flows, {(MASTER, name): 1e8 for name in started[:-2]})
    assert {"w0", "w1", "w2"} <= grid.samples.measured.seen
