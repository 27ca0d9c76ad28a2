"""The live network: the tree of connected workers, its current flows, and conclusions from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_switches
from loopline_master.core.wings.transfers.flow_sample import FlowSample
from loopline_master.core.wings.transfers.network import Network
from loopline_master.engine import Engine
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.learned_network import LearnedNetwork, cards, flowing
from loopline_master.settings import MasterSettings
from loopline_master.transfers.known_network import KnownNetwork
from loopline_master.transfers.network_file import NetworkFile, read_network
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.rest.bodies.network import MeasurementView, NetworkNodeView, NetworkView

_LOOK_EVERY_S = 0.5
_REST = 4.0
"""Pause after learning, as a multiple of its duration, since its thread delays the event loop."""


class LiveNetwork:
    """Tree of the master and the connected workers. Raises LooplineError if the operator's file has a mistake."""

    def __init__(self, settings: MasterSettings, engine: Engine, scheduler: Scheduler, exchange: Exchange) -> None:
        self._settings = settings
        self._engine = engine
        self._workers = scheduler.state.workers
        self._exchange = exchange
        self._file = _read(settings)
        self._learned = LearnedNetwork(self._file, FlowSamples(settings.data_dir / "measured-network.json"))
        self._changed = asyncio.Event()
        exchange.on_change = self._changed.set

    @property
    def has_file(self) -> bool:
        """True if an operator has written the network down: then nothing is measured."""
        return self._file is not None

    def known(self) -> KnownNetwork:
        """Return the tree as it is known now."""
        return self._learned.known(self._links())

    async def run(self) -> None:
        """Tell the scheduler of the tree whenever it changes, and learn from the flows while there are any."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            flows, links, began = self._exchange.flows(), self._links(), time.monotonic()
            if self._learned.observe(time.time(), links, flows, self._exchange.swift(), self._exchange.trains()):
                await self._learned.samples.learn(assumed_switches(links), cards(links))
            took_s = time.monotonic() - began
            if event := self._learned.change(time.monotonic(), links, flows):
                self._engine.post(event)
            if flows:
                self._changed.set()
            await asyncio.sleep(max(_LOOK_EVERY_S, _REST * took_s))

    def _links(self) -> dict[str, HostLink | None]:
        return {
            worker.name: worker.facts.link
            for worker in self._workers.values()
            if worker.session is not None and worker.name != MASTER
        }

    def show(self, sample: FlowSample) -> None:
        """Have the network learn from a sample that was made on purpose."""
        self._learned.show(sample)
        self._changed.set()

    def view(self, measurement: MeasurementView) -> NetworkView:
        """Return the tree and its flows, for people and programs."""
        known, flows = self.known(), self._exchange.flows()
        network, loads = known.network, flowing(known.network, flows)
        nodes = [
            NetworkNodeView(
                name=node.name,
                parent=node.parent,
                is_switch=node.is_switch,
                known_by=known.known_by.get(node.name),
                up=node.up,
                down=node.down,
                flowing_up=loads[network.ups[place]],
                flowing_down=loads[network.downs[place]],
            )
            for place in _downwards(network)
            for node in (network.nodes[place],)
        ]
        file = str(_file_of(self._settings)) if self._file else None
        return NetworkView(file=file, peers=self._exchange.is_on, nodes=nodes, flows=flows, measurement=measurement)


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
