"""Links that carry less than they are known to: found at once, for a plan would count on them.

A free flow is held back by the network alone. If no link on its way is full, the fullest of them carries only its
current flows, even if network.toml says more. That is believed until the link carries clearly more again, and for a
while at most: a plan leaves it room to show that it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from loopline_master.core.wings.transfers.flow_sample import NEAR
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_shared.rest.bodies.network import FileFlow

_BELIEVED_S = 30.0
_RECOVERED = 1.35
"""A rate this many times its slow rate shows that a link has recovered."""
_ROOM = 1.5
"""Share of that rate that a plan may use."""

_Way = tuple[str, bool]
"""A node, and whether its link upwards is meant."""


class SlowLinks:
    """Links that are slow now, with the rate measured on each, in bytes per second."""

    def __init__(self) -> None:
        self._seen: dict[_Way, tuple[float, float]] = {}  # rate, and until when it is believed

    def observe(
        self,
        now: float,
        known: Network,
        loads: Mapping[int, float],
        flows: Iterable[FileFlow],
        assumed: Collection[int] = (),
    ) -> None:
        """Look at the flows and at what each direction of the network carries, in bytes per second.

        Flows over links that are merely ``assumed``, given as numbers of nodes, show nothing.
        """
        self._seen = {
            way: seen
            for way, seen in self._seen.items()
            if seen[1] > now and way[0] in known.number and loads.get(_number(known, way), 0.0) < _RECOVERED * seen[0]
        }
        for flow in flows:
            if flow.is_free and flow.source in known.number and flow.receiver in known.number:
                way = known.way(known.number[flow.source], known.number[flow.receiver])
                if not any(one // 2 in assumed for one in way):
                    self._note(now, known, loads, way)

    def _note(self, now: float, known: Network, loads: Mapping[int, float], way: list[int]) -> None:
        fullness = {one: loads.get(one, 0.0) / known.limits[one] for one in way if known.limits[one]}
        if fullness and max(fullness.values()) < NEAR:
            slow = max(fullness, key=fullness.__getitem__)
            name = known.nodes[slow // 2].name, slow % 2 == 0
            rate, _ = self._seen.get(name, (loads[slow], 0.0))
            self._seen[name] = min(rate, loads[slow]), now + _BELIEVED_S

    def limited(self, nodes: Mapping[str, NetworkNode]) -> dict[str, NetworkNode]:
        """Return the nodes with capacities limited to the measured rates, plus some room."""
        found = dict(nodes)
        for (name, is_up), (rate, _) in self._seen.items():
            if name in found:
                found[name] = _limited(found[name], is_up, rate * _ROOM)
        return found


def _number(network: Network, way: _Way) -> int:
    return 2 * network.number[way[0]] + (not way[1])


def _limited(node: NetworkNode, is_up: bool, rate: float) -> NetworkNode:
    return replace(node, up=min(node.up, rate)) if is_up else replace(node, down=min(node.down, rate))
