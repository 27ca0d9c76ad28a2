"""The live network: the tree of those who are connected, what flows along it now, and what that shows of it."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from loopline_master.core.events import NetworkChanged
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.transfers.assumed_network import MASTER, assumed_switches
from loopline_master.core.transfers.measured_network import FlowSample
from loopline_master.core.transfers.network import Network, NetworkNode
from loopline_master.engine import Engine
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.slow_links import SlowLinks
from loopline_master.settings import MasterSettings
from loopline_master.transfers.known_network import KnownNetwork, known_network
from loopline_master.transfers.network_file import NetworkFile, read_network
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import FileFlow, KnownBy, MeasurementView, NetworkNodeView, NetworkView

_LOOK_EVERY_S = 1.0
_HEADROOM, _SAME = 1.1, 0.05


class LiveNetwork:
    """Tree of the master and the connected workers. Raises LooplineError if the operator's file has a mistake."""

    def __init__(self, settings: MasterSettings, engine: Engine, scheduler: Scheduler, exchange: Exchange) -> None:
        self._settings = settings
        self._engine = engine
        self._workers = scheduler.state.workers
        self._exchange = exchange
        self._file = _read(settings)
        self._samples = FlowSamples(settings.data_dir / "measured-network.json")
        self._slow = SlowLinks()
        self._changed = asyncio.Event()
        self._is_shown = False
        self._told: dict[str, NetworkNode] = {}
        exchange.on_change = self._changed.set

    @property
    def has_file(self) -> bool:
        """True if an operator has written the network down: then nothing is measured."""
        return self._file is not None

    def known(self) -> KnownNetwork:
        """Return the tree as it is known now."""
        return known_network(self._file, self._links(), self._samples.measured)

    async def run(self) -> None:
        """Tell the scheduler of the tree whenever it changes, and learn from the flows while there are any."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            flows = self._exchange.flows()
            assumed = assumed_switches(self._links())
            if self._samples.observe(time.time(), flows) or self._is_shown or self._samples.is_news(assumed):
                self._is_shown = False
                await self._samples.learn(assumed)
            self._find_slow_links(flows)
            self._tell()
            if flows:
                self._changed.set()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _find_slow_links(self, flows: list[FileFlow]) -> None:
        """Look for links that carry less than they are known to; what cards say is too little to go by."""
        known = self.known()
        assumed = {known.network.number[name] for name, by in known.known_by.items() if by is KnownBy.ASSUMED}
        self._slow.observe(time.time(), known.network, _flowing(known.network, flows), flows, assumed)

    def _tell(self) -> None:
        known = self.known()
        nodes = {node.name: _with_headroom(node, known.known_by.get(node.name)) for node in known.network.nodes}
        nodes = self._slow.limited(nodes)
        changed = {name: node for name, node in nodes.items() if not _is_alike(self._told.get(name), node)}
        gone = tuple(sorted(self._told.keys() - nodes.keys()))
        if changed or gone:
            self._told = {name: node for name, node in self._told.items() if name in nodes} | changed
            self._engine.post(NetworkChanged(tuple(changed.values()), gone))

    def _links(self) -> dict[str, HostLink | None]:
        return {
            worker.name: worker.facts.link
            for worker in self._workers.values()
            if worker.session is not None and worker.name != MASTER
        }

    def show(self, sample: FlowSample) -> None:
        """Have the network learn from a sample that was made on purpose."""
        self._samples.add(sample)
        self._is_shown = True
        self._changed.set()

    def view(self, measurement: MeasurementView) -> NetworkView:
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
        return NetworkView(file=file, peers=self._exchange.is_on, nodes=nodes, flows=flows, measurement=measurement)


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
