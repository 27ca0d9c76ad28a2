"""The network as a tree: switches and hosts, what their links carry, how that is known, and what flows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from loopline.cli.render import human
from loopline_shared.rest.bodies.network import FileFlow, KnownBy, NetworkNodeView, NetworkView

_STYLES = {KnownBy.FILE: "green", KnownBy.MEASURED: "cyan", KnownBy.ASSUMED: "dim"}
_WORDS = {KnownBy.FILE: "as written", KnownBy.MEASURED: "measured", KnownBy.ASSUMED: "assumed"}


def drawn(view: NetworkView) -> RenderableType:
    """Return the tree, and the files on their way below it."""
    trees: dict[str, Tree] = {}
    for node in view.nodes:
        if node.parent is None:
            trees[node.name] = Tree(Text(node.name, "bold"), guide_style="dim")
        else:
            trees[node.name] = trees[node.parent].add(_line(node))
    root = next(node.name for node in view.nodes if node.parent is None)
    parts: list[RenderableType] = [trees[root]]
    parts += flow_lines(view.flows)
    return Group(*parts, Text(_remark(view), "dim"))


def flow_lines(flows: Sequence[FileFlow], most: int = 1000) -> list[RenderableType]:
    """Return a line for each file on its way, up to a number."""
    more = [Text(f"... and {human.plural(len(flows) - most, 'file')} more", "dim")] if len(flows) > most else []
    return [*(Text(_flow_words(flow)) for flow in flows[:most]), *more]


def rate(bytes_s: float) -> str:
    """Return bytes per second as people say them of a link: ``100 Mbit/s``."""
    bits = bytes_s * 8
    size, unit = next(pair for pair in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
                      if bits >= pair[0] or pair[0] == 1.0)  # fmt: skip
    return f"{bits / size:.3g} {unit}"


def _line(node: NetworkNodeView) -> Text:
    capacity = rate(node.up) if node.up == node.down else f"{rate(node.up)} up, {rate(node.down)} down"
    line = Text(node.name, "bold" if node.is_switch else "")
    if node.known_by:
        line.append(f"  {capacity} {_WORDS[node.known_by]}", _STYLES[node.known_by])
    for arrow, flowing, whole in (("↑", node.flowing_up, node.up), ("↓", node.flowing_down, node.down)):
        if flowing:
            share = f" ({flowing / whole:.0%})" if whole else ""
            line.append(f"  {arrow} {rate(flowing)}{share}", "yellow")
    return line


def _flow_words(flow: FileFlow) -> str:
    share = f"{flow.have_bytes / flow.size_bytes:.0%}" if flow.size_bytes else "all"
    left_s = (flow.size_bytes - flow.have_bytes) / flow.rate_bytes_s if flow.rate_bytes_s else None
    until = f", {human.duration(left_s)} left" if left_s is not None else ""
    way = f"{flow.sha256[:12]}  {flow.source} → {flow.receiver}"
    return f"{way}: {share} of {human.amount(flow.size_bytes)} at {rate(flow.rate_bytes_s)}{until}"


def _remark(view: NetworkView) -> str:
    told = f"from {view.file}" if view.file else "no network.toml; `loopline network FILE` checks one"
    peers = "between workers" if view.peers else "from the master alone (peers = off, or auto without encryption)"
    return f"{told}; files go {peers}"
