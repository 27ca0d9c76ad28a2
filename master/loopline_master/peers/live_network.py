"""The live network: the tree of those who are connected, and what flows along it now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from loopline_master.core.scheduler import Scheduler
from loopline_master.core.transfers.network import Network
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.transfers.known_network import KnownNetwork, known_network
from loopline_master.transfers.network_file import NetworkFile, read_network
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies.network import FileFlow, NetworkNodeView, NetworkView


class LiveNetwork:
    """Tree of the master and the connected workers. Raises LooplineError if the operator's file has a mistake."""

    def __init__(self, settings: MasterSettings, scheduler: Scheduler, exchange: Exchange) -> None:
        self._settings = settings
        self._workers = scheduler.state.workers
        self._exchange = exchange
        self._file = _read(settings)

    def known(self) -> KnownNetwork:
        """Return the tree as it is known now."""
        links = {worker.name: worker.facts.link for worker in self._workers.values() if worker.session is not None}
        return known_network(self._file, links)

    def view(self) -> NetworkView:
        """Return the tree and what flows along it, for people and programs."""
        known, flows = self.known(), self._exchange.flows()
        network, flowing = known.network, _flowing(known.network, flows)
        nodes = [
            NetworkNodeView(
                name=node.name,
                parent=node.parent,
                is_switch=node.is_switch,
                known_by=known.known_by.get(node.name),
                up=node.up,
                down=node.down,
                flowing_up=flowing[network.ups[place]],
                flowing_down=flowing[network.downs[place]],
            )
            for place in _downwards(network)
            for node in (network.nodes[place],)
        ]
        file = str(_file_of(self._settings)) if self._file else None
        return NetworkView(file=file, peers=self._settings.scheduler.peers, nodes=nodes, flows=flows)


def _flowing(network: Network, flows: list[FileFlow]) -> defaultdict[int, float]:
    """Return the bytes per second in each direction of each link."""
    flowing = defaultdict[int, float](float)
    for flow in flows:
        ends = [network.number[name] for name in (flow.source, flow.receiver) if name in network.number]
        if len(ends) == 2:
            for direction in network.way(*ends):
                flowing[direction] += flow.rate_bytes_s
    return flowing


def _downwards(network: Network) -> Iterator[int]:
    """Yield the nodes, parents first: hosts before switches, by name."""
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(network.parent):
        children.setdefault(parent, []).append(place)
    stack = children[-1]
    while stack:
        place = stack.pop()
        yield place
        below = children.get(place, [])
        stack += sorted(below, key=lambda one: (network.nodes[one].is_switch, network.nodes[one].name), reverse=True)


def _read(settings: MasterSettings) -> NetworkFile | None:
    file = _file_of(settings)
    if settings.network_file is None and not file.exists():
        return None
    try:
        return read_network(file.read_text("utf-8"), file.name)
    except (OSError, UnicodeDecodeError) as error:
        raise LooplineError("bad_network", f"{file} cannot be read: {error}") from None


def _file_of(settings: MasterSettings) -> Path:
    return settings.network_file or settings.data_dir / "network.toml"
