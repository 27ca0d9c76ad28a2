"""Pictures of one seed: the network with the first pipelines of each strategy, and each link's use over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loopline_master.core.wings.transfers.network import Network
from loopline_simulator.drawing import save
from loopline_simulator.papers.data_transfer.transfer_scenario import MASTER
from loopline_simulator.papers.data_transfer.transfer_trial import Meter, TransferCase, observe, rates

_DPI = 90
_COLOURS = ("#3b6fb6", "#d97a1f", "#3a8f5c", "#a04a9c", "#8a6d3b", "#c23b3b", "#2b9eb3", "#5c5c5c")
_GREY = "#666666"
_APART = 0.14
"""Distance between pipelines that use the same link, in rows of hosts."""


def draw(cases: Sequence[TransferCase], folder: Path) -> list[Path]:
    """Draw ``transfer-tree-STRATEGY`` of each case, and ``transfer-links`` of all together, as SVG."""
    meters = {case.strategy: observe(case)[1] for case in cases}
    files = []
    for name, meter in meters.items():
        files += save(partial(_tree, name, meter), folder / f"transfer-tree-{name}", dpi=_DPI)
    return files + save(partial(_links, meters), folder / "transfer-links", dpi=_DPI)


def _tree(name: str, meter: Meter) -> Any:
    """Draw the root on the left and a row for each host; wide links are thick, a pipeline is a line beside them."""
    from matplotlib.figure import Figure

    _, _, network, flows = meter.stretches[0]
    places = _places(network)
    figure = Figure(figsize=(9, 1.2 + 0.24 * sum(not node.is_switch for node in network.nodes)), layout="constrained")
    axes = figure.subplots()
    most = max(network.limits)
    for place, parent in enumerate(network.parent):
        if parent != -1:
            thick = 1.0 + 9.0 * network.limits[2 * place] / most
            axes.plot(*_link(places, place, parent, 0.0), color="#e4e4e4", linewidth=thick, zorder=1)
    flows = tuple(flow for flow in flows if flow.rate)
    files = sorted({flow.file for flow in flows})
    slots: dict[int, int] = {}
    for flow in sorted(flows, key=lambda flow: (flow.file, flow.hosts)):
        colour = _COLOURS[files.index(flow.file) % len(_COLOURS)]
        for way in network.use([network.number[host] for host in flow.hosts]):
            slot = slots[way // 2] = slots.get(way // 2, 0) + 1
            shift = _APART * (slot // 2) * (-1) ** slot
            line = _link(places, way // 2, network.parent[way // 2], shift)
            style = "-" if way % 2 else (0, (2, 1.2))
            axes.plot(*line, color=colour, linewidth=0.6 + 2.0 * flow.rate / most, linestyle=style, zorder=2)
        source = network.number[flow.hosts[0]]
        axes.plot(*places[source], "o", color=colour, markersize=6, zorder=4)
    for place, node in enumerate(network.nodes):
        side: dict[str, Any] = {"ha": "right", "va": "bottom"} if node.is_switch else {"ha": "left", "va": "center"}
        shift = (-4, 4) if node.is_switch else (5, 0)
        axes.annotate(node.name, places[place], shift, textcoords="offset points", fontsize=8, color="black", **side)
    for number, file in enumerate(files):
        axes.plot([], [], color=_COLOURS[number % len(_COLOURS)], label=file)
    axes.plot([], [], color=_GREY, linestyle=(0, (2, 1.2)), label="towards the root")
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    axes.set_axis_off()
    axes.margins(x=0.12)
    rate = sum(flow.rate * len(flow.receivers) for flow in flows) / 1e6
    figure.suptitle(f"{name}: {rate:,.0f} MB/s at all receivers together, at the beginning", x=0.01, ha="left")
    return figure


def _link(
    places: Sequence[tuple[float, float]], child: int, parent: int, shift: float
) -> tuple[list[float], list[float]]:
    """Return the corners of a link: across from its node, then along to the switch above."""
    (x, y), (above_x, above_y) = places[child], places[parent]
    return [x, above_x + 0.15, above_x], [y + shift, y + shift, above_y]


def _places(network: Network) -> list[tuple[float, float]]:
    """Return x (depth) and y (row) of each node: a row for each host, a switch in the middle of its own."""
    below: dict[int, list[int]] = {}
    for place, parent in enumerate(network.parent):
        below.setdefault(parent, []).append(place)
    rows: dict[int, float] = {}
    next_row = 0.0

    def settle(place: int) -> None:
        nonlocal next_row
        children = sorted(below.get(place, ()), key=lambda child: network.nodes[child].is_switch)
        for child in children:
            settle(child)
        if children:
            rows[place] = (rows[children[0]] + rows[children[-1]]) / 2
        else:
            rows[place] = next_row = next_row - 1.0

    settle(below[-1][0])
    deepest = max(network.depth)
    return [
        (float(network.depth[place] if node.is_switch else deepest), rows[place])
        for place, node in enumerate(network.nodes)
    ]


def _links(meters: dict[str, Meter]) -> Any:
    """Draw a panel for each strategy: how much of each direction between switches is in use over time."""
    from matplotlib.figure import Figure

    network = next(iter(meters.values())).stretches[0][2]
    shown = [
        way
        for place, node in enumerate(network.nodes)
        if network.parent[place] != -1 and (node.is_switch or node.name == MASTER)
        for way in (2 * place, 2 * place + 1)
    ]
    titles = [f"{network.nodes[way // 2].name} {'↓' if way % 2 else '↑'}" for way in shown]
    figure = Figure(figsize=(11.5, 0.6 + (0.5 + 0.19 * len(shown)) * len(meters)), layout="constrained")
    panels = figure.subplots(len(meters), 1, sharex=True, squeeze=False)[:, 0]
    colours: Any = None
    for axes, (name, meter) in zip(panels, meters.items(), strict=True):
        edges = [0.0, *(end for _, end, _, _ in meter.stretches)]
        use = [_shares(part[2], part[3], shown) for part in meter.stretches]
        colours = axes.pcolormesh(
            edges,
            range(len(shown) + 1),
            list(zip(*use, strict=True)),
            cmap="viridis_r",
            vmin=0.0,
            vmax=1.0,
            edgecolor="face",
        )
        axes.axvline(edges[-1], color=_GREY, linewidth=0.8)
        axes.set_yticks([row + 0.5 for row in range(len(shown))], titles, fontsize=7)
        axes.invert_yaxis()
        axes.set_title(f"{name}: done after {edges[-1]:,.0f} s", loc="left", fontsize=10)
    panels[-1].set_xlabel("time (s)")
    bar = figure.colorbar(colours, ax=list(panels), shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("share of the capacity in use")
    bar.outline.set_visible(False)
    return figure


def _shares(network: Network, flows: Any, ways: Sequence[int]) -> list[float]:
    used = rates(network, flows)
    return [used.get(way, 0.0) / network.limits[way] for way in ways]
