"""The network as far as it is known: each link by the operator's file, by measuring, or by assumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_network, rate_of
from loopline_master.core.wings.transfers.measured_network import NOTHING_MEASURED, MeasuredNetwork
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.transfers.network_file import NetworkFile
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import KnownBy


@dataclass(frozen=True, slots=True)
class KnownNetwork:
    """A network, and for each node but the root how its link to its parent is known."""

    network: Network
    known_by: Mapping[str, KnownBy]


def known_network(
    file: NetworkFile | None, links: Mapping[str, HostLink | None], measured: MeasuredNetwork = NOTHING_MEASURED
) -> KnownNetwork:
    """Return the network of the master and these workers. What the operator's file says is over all else.

    Workers that no rule of the file places are put at its root, on links of their cards' speed.
    """
    links = {name: link for name, link in links.items() if name != MASTER}
    if file is None:
        network = assumed_network(links, measured)
        return KnownNetwork(network, {node.name: _known_by(node, measured) for node in network.nodes if node.parent})
    placed, unplaced = file.network((MASTER, *sorted(links)))
    root = next(node.name for node in placed.nodes if node.parent is None)
    fastest = max((rate_of(link) for link in links.values()), default=rate_of(None))
    rates = {name: fastest if name == MASTER else rate_of(links[name]) for name in unplaced}
    extra = [NetworkNode(name, root, rate, rate) for name, rate in rates.items()]
    known_by = {node.name: KnownBy.FILE for node in placed.nodes if node.parent}
    return KnownNetwork(Network([*placed.nodes, *extra]), known_by | dict.fromkeys(rates, KnownBy.ASSUMED))


def _known_by(node: NetworkNode, measured: MeasuredNetwork) -> KnownBy:
    found = measured.switches if node.is_switch else measured.hosts
    return KnownBy.MEASURED if node.name in found else KnownBy.ASSUMED
