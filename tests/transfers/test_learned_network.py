"""When first pieces become a sample, and which hosts' places are guesses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_switches
from loopline_master.core.wings.transfers.flow_sample import FlowSample, Pair
from loopline_master.peers import learned_network
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


def test_host_stays_known_when_other_samples_have_replaced_its_own() -> None:
    grid = Grid()
    grid.look(100.0, {(MASTER, "old"): 2**20}, {(MASTER, "old"): 1e8})
    assert grid.guesses() == set()
    for number in range(130):
        pair = f"a{number}", f"b{number}"
        grid.samples.add(FlowSample(200.0 + number, {pair: 1e8}, frozenset([pair])))
    grid.look(400.0, {("other", "new"): 0}, {})
    assert "old" not in grid.samples.measured.seen
    assert grid.guesses() == {"other", "new"}


def test_number_of_remembered_hops_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is sampled again."""
    monkeypatch.setattr(learned_network, "_MOST_KNOWN", 2)
    grid = Grid()
    for number in (1, 2, 3):
        grid.look(100.0 + number, {("a", f"b{number}"): 2**20}, {("a", f"b{number}"): 1e8})
    shown = list[FlowSample]()
    monkeypatch.setattr(grid.samples, "add", shown.append)
    for number in (3, 2, 1):
        grid.look(200.0 + number, {("a", f"b{number}"): 2**20}, {("a", f"b{number}"): 1e8})
    assert [sample.rates for sample in shown] == [{("a", "b1"): 1e8}]


def test_first_pieces_are_of_an_idle_network_only_if_no_receiver_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for have_bytes, is_idle in ((2**20, True), (2**20 + 1, False)):
        grid, shown = Grid(), list[FlowSample]()
        monkeypatch.setattr(grid.samples, "add", shown.append)
        flows = {(MASTER, "new"): 2**18, ("old", "other"): have_bytes}
        grid.look(100.0, flows, dict.fromkeys(flows, 1e8))
        assert [sample.is_idle for sample in shown] == [is_idle]
