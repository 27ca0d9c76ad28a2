"""The network as learned from flows, and its changes for the scheduler. The simulator runs the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from loopline_master.core.events import NetworkChanged
from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_switches, rate_of
from loopline_master.core.wings.transfers.flow_sample import FlowSample, Pair
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.slow_links import SlowLinks
from loopline_master.transfers.known_network import KnownNetwork, known_network
from loopline_master.transfers.network_file import NetworkFile
from loopline_shared.pieces import piece_bytes, train_bytes
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import FileFlow, KnownBy

_HEADROOM, _SAME = 1.5, 0.05
_AWAITED_S, _GUESSES_AWAITED_S = 1.0, 4.0
"""Seconds after the first of several first pieces until the others are no longer awaited: those of receivers whose
places are known, and of those whose places are guesses. The latter are limited for longer (``carrying.py``)."""
_MOST_KNOWN = 50_000
"""Number of hosts, and of hops, that are remembered as measured; some megabytes."""
NO_TRAINS: Mapping[Pair, float] = {}

_Thing = TypeVar("_Thing")
Links = Mapping[str, HostLink | None]
"""The cards of the workers that are there."""


class LearnedNetwork:
    """The network as it is known: from the operator's file, from samples of flows, else assumed."""

    def __init__(self, file: NetworkFile | None, samples: FlowSamples) -> None:
        self.samples = samples
        self._file = file
        self._slow = SlowLinks()
        self._is_shown = False
        self._trains: dict[Pair, float] = {}  # by hop: the rate of its first piece, in bytes per second
        self._tried: dict[Pair, None] = {}  # hops whose first pieces were sampled, the newest last
        self._seen: dict[str, None] = {}  # hosts that were measured, also if their samples are gone, the newest last
        self._since = 0.0
        self._awaited = set[str]()  # receivers without their first pieces at that time
        self._told: dict[str, NetworkNode] = {}

    def known(self, links: Links) -> KnownNetwork:
        """Return the tree of these workers as it is known now."""
        return known_network(self._file, links, self.samples.measured)

    def show(self, sample: FlowSample) -> None:
        """Keep a sample that was made on purpose; there is something to learn from it."""
        self.samples.add(sample)
        self._is_shown = True

    def observe(
        self,
        now: float,
        links: Links,
        flows: Sequence[FileFlow],
        swift: Collection[Pair],
        trains: Mapping[Pair, float] = NO_TRAINS,
    ) -> bool:
        """Sample the flows and the rates of first pieces. True if there is a new sample."""
        if self._file is None:
            self._collect(now, flows, trains)
        is_shown, self._is_shown = self._is_shown, False
        is_sample = self.samples.observe(now, flows, swift)
        return is_sample or is_shown or self.samples.is_news(assumed_switches(links))

    def _collect(self, now: float, flows: Sequence[FileFlow], trains: Mapping[Pair, float]) -> None:
        """Make one sample of the first pieces on new hops, once all have arrived.

        Receivers whose place is a guess may take nothing else until then. They are awaited for longer than others,
        but later receivers are not awaited: in a room that boots, there is always another.
        """
        seen = self._seen
        begins = {flow.receiver for flow in flows if flow.have_bytes < piece_bytes(flow.size_bytes)}
        if not self._trains:
            self._since, self._awaited = now, begins
        self._trains |= {pair: rate for pair, rate in trains.items() if pair not in self._tried}
        missing = {(flow.source, flow.receiver) for flow in flows} - self._tried.keys() - self._trains.keys()
        is_waiting = any(pair[1] in self._awaited & begins - seen.keys() for pair in missing)
        awaited_s = _GUESSES_AWAITED_S if is_waiting else _AWAITED_S
        if self._trains and (not missing or now >= self._since + awaited_s):
            is_first = any(receiver not in seen for _, receiver in self._trains)
            is_idle = is_first and not any(map(_is_under_way, flows))
            self.show(FlowSample(now, self._trains, frozenset(self._trains), in_turn=True, is_idle=is_idle))
            _remember(self._tried, self._trains)
            self._trains = {}

    def _is_guess(self, node: NetworkNode) -> bool:
        return not node.is_switch and node.name != MASTER and node.name not in self._seen

    def change(self, now: float, links: Links, flows: list[FileFlow]) -> NetworkChanged | None:
        """Return the changes since the scheduler's last update; None if there are none."""
        known = self.known(links)
        assumed = {known.network.number[name] for name, by in known.known_by.items() if by is KnownBy.ASSUMED}
        self._slow.observe(now, known.network, flowing(known.network, flows), flows, assumed)
        nodes = {node.name: _with_headroom(node, known.known_by.get(node.name)) for node in known.network.nodes}
        nodes = self._slow.limited(nodes)
        if self._file is None:
            _remember(self._seen, sorted(self.samples.measured.seen - self._seen.keys()))
            nodes = {name: replace(node, is_guess=self._is_guess(node)) for name, node in nodes.items()}
        changed = {name: node for name, node in nodes.items() if not _is_alike(self._told.get(name), node)}
        gone = tuple(sorted(self._told.keys() - nodes.keys()))
        if not (changed or gone):
            return None
        self._told = {name: node for name, node in self._told.items() if name in nodes} | changed
        return NetworkChanged(tuple(changed.values()), gone)


def _remember(known: dict[_Thing, None], more: Iterable[_Thing]) -> None:
    """Add more hosts or hops to the known ones, and forget the oldest above the limit."""
    known.update(dict.fromkeys(more))
    for thing in [*islice(known, max(0, len(known) - _MOST_KNOWN))]:
        del known[thing]


def _is_under_way(flow: FileFlow) -> bool:
    """True if a receiver has more than first pieces, so that its flow may slow down the first pieces of others."""
    return flow.have_bytes > train_bytes(flow.size_bytes, is_from_master=True)


def cards(links: Links) -> dict[str, float]:
    """Return the speeds that cards report, in bytes per second."""
    return {name: rate_of(link) for name, link in links.items() if link is not None and link.rate}


def flowing(network: Network, flows: Iterable[FileFlow]) -> defaultdict[int, float]:
    """Return the bytes per second in each direction of each link."""
    loads = defaultdict[int, float](float)
    for flow in flows:
        ends = [network.number[name] for name in (flow.source, flow.receiver) if name in network.number]
        if len(ends) == 2:
            for direction in network.way(*ends):
                loads[direction] += flow.rate_bytes_s
    return loads


def _with_headroom(node: NetworkNode, known_by: KnownBy | None) -> NetworkNode:
    """Return the node with more than was measured: flows at that rate show whether the link carries more by now."""
    if known_by is not KnownBy.MEASURED:
        return node
    return replace(node, up=node.up * _HEADROOM, down=node.down * _HEADROOM)


def _is_alike(told: NetworkNode | None, node: NetworkNode) -> bool:
    """True if a plan would be much the same with the one node as with the other."""
    if told is None or (told.parent, told.is_guess) != (node.parent, node.is_guess):
        return False
    pairs = ((told.up, node.up), (told.down, node.down))
    return all(abs(one - other) <= _SAME * one for one, other in pairs)
