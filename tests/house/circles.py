"""The graph of files that import one another, and the circles in it."""

from __future__ import annotations

import ast
import graphlib
import posixpath
import re
from collections.abc import Iterator

from tests.house.sources import ROOT, Source, tracked

Graph = dict[str, set[str]]

_WEB_IMPORT = re.compile(r"""^\s*(?:import|export)\b[^"';]*?["'](\.[^"']*)["']""", re.MULTILINE)


def circles(graph: Graph) -> list[str]:
    """Return circles, each from its first file round to it: as many as must be cut to leave none."""
    rest, found = {file: set(needs) for file, needs in graph.items()}, []
    while circle := _circle(rest):
        low = circle.index(min(circle))
        ring = circle[low:] + circle[:low]
        found.append(" -> ".join([*ring, ring[0]]))
        rest[ring[-1]].discard(ring[0])
    return found


def _circle(graph: Graph) -> list[str]:
    """Return one circle, each file before its import; empty without circles."""
    try:
        graphlib.TopologicalSorter({file: sorted(needs) for file, needs in sorted(graph.items())}).prepare()
    except graphlib.CycleError as error:
        ring: list[str] = error.args[1][:-1]
        return ring[::-1]
    return []


def imports(files: tuple[Source, ...], *, late: bool) -> Graph:
    """Return who imports whom as a file is loaded; with ``late`` also inside functions and for types alone."""
    modules = {source.module: str(source.path) for source in files}
    graph: Graph = {}
    for source in files:
        nodes = source.nodes if late else _as_loaded(source.tree)
        names = {name for node in nodes for name in _imported(node, modules)}
        graph[str(source.path)] = {modules[name] for name in names} - {str(source.path)}
    return graph


def _as_loaded(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _as_loaded(child)


def _imported(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner in modules:
                yield inner
            elif node.module in modules:
                yield node.module


def web_imports() -> Graph:
    """Return which file of the page imports which, types included."""
    files = {path for path in tracked() if path.startswith("web/src/") and path.endswith((".ts", ".tsx"))}
    return {path: {needed for needed in _web_needs(path, files) if needed != path} for path in sorted(files)}


def _web_needs(path: str, files: set[str]) -> Iterator[str]:
    for name in _WEB_IMPORT.findall((ROOT / path).read_text("utf-8")):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        yield from (f for f in (target, f"{target}.ts", f"{target}.tsx", f"{target}/index.ts") if f in files)
