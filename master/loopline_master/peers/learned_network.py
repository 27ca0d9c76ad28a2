"""The network as learned from flows, and its changes for the scheduler. The simulator runs the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from loopline_master.core.events import NetworkChanged
from loopline_master.core.wings.transfers.assumed_network import assumed_switches, rate_of
from loopline_master.core.wings.transfers.flow_sample import FlowSample, Pair
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.slow_links import SlowLinks
from loopline_master.transfers.known_network import KnownNetwork, known_network
from loopline_master.transfers.network_file import NetworkFile
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import FileFlow, KnownBy

_HEADROOM, _SAME = 1.5, 0.05

Links = Mapping[str, HostLink | None]
"""The cards of the workers that are there."""


class LearnedNetwork:
    """The network as it is known: from the operator's file, from samples of flows, else assumed."""

    def __init__(self, file: NetworkFile | None, samples: FlowSamples) -> None:
        self.samples = samples
        self._file = file
        self._slow = SlowLinks()
        self._is_shown = False
        self._told: dict[str, NetworkNode] = {}

    def known(self, links: Links) -> KnownNetwork:
        """Return the tree of these workers as it is known now."""
        return known_network(self._file, links, self.samples.measured)

    def show(self, sample: FlowSample) -> None:
        """Keep a sample that was made on purpose; there is something to learn from it."""
        self.samples.add(sample)
        self._is_shown = True

    def observe(self, now: float, links: Links, flows: Iterable[FileFlow], swift: Collection[Pair]) -> bool:
        """Look at the flows. True if the samples have something to be learnt from."""
        is_shown, self._is_shown = self._is_shown, False
        is_sample = self.samples.observe(now, flows, swift)
        return is_sample or is_shown or self.samples.is_news(assumed_switches(links))

    def change(self, now: float, links: Links, flows: list[FileFlow]) -> NetworkChanged | None:
        """Return the changes since the scheduler's last update; None if there are none."""
        known = self.known(links)
        assumed = {known.network.number[name] for name, by in known.known_by.items() if by is KnownBy.ASSUMED}
        self._slow.observe(now, known.network, flowing(known.network, flows), flows, assumed)
        nodes = {node.name: _with_headroom(node, known.known_by.get(node.name)) for node in known.network.nodes}
        nodes = self._slow.limited(nodes)
        changed = {name: node for name, node in nodes.items() if not _is_alike(self._told.get(name), node)}
        gone = tuple(sorted(self._told.keys() - nodes.keys()))
        if not (changed or gone):
            return None
        self._told = {name: node for name, node in self._told.items() if name in nodes} | changed
        return NetworkChanged(tuple(changed.values()), gone)


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
    if told is None or (told.parent, told.is_switch) != (node.parent, node.is_switch):
        return False
    pairs = ((told.up, node.up), (told.down, node.down))
    return all(abs(one - other) <= _SAME * one for one, other in pairs)
