"""``loopline network FILE``: checks a network.toml and draws its tree.

Exit codes: 0 the file is right; 1 it cannot be read or has a mistake; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.tree import Tree

from loopline_master.transfers.network_file import NetworkFile, read_network
from loopline_shared.errors import LooplineError

_UNITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser("loopline network", description="Check a network.toml and draw its tree.")
    parser.add_argument("file", type=Path, help="the network.toml; docs/transfers.md says how to write one")
    parser.add_argument("--json", action="store_true", help="answer with JSON on stdout, and nothing else")
    options = parser.parse_args(arguments)
    try:
        found = read_network(options.file.read_text("utf-8"), options.file.name)
    except (OSError, UnicodeDecodeError) as error:
        return _complain(f"{options.file} cannot be read: {error}", "")
    except LooplineError as error:
        return _complain(error.message, error.hint)
    if options.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        Console(highlight=False, markup=False).print(drawn(found))
    return 0


def drawn(found: NetworkFile) -> Tree:
    """Return the tree of switches, with the rules for hosts as leaves."""
    branches: dict[str | None, list[str]] = {}
    nodes = {node.name: node for node in found.switches}
    for node in found.switches:
        branches.setdefault(node.parent, []).append(node.name)

    def grow(tree: Tree, name: str) -> Tree:
        for rule in found.rules:
            if rule.switch == name:
                tree.add(f"hosts {rule.pattern}: {_bits(rule.capacity)}")
        for child in branches.get(name, ()):
            up, down = _bits(nodes[child].up), _bits(nodes[child].down)
            grow(tree.add(f"{child}: {up}" if up == down else f"{child}: {up} up, {down} down"), child)
        return tree

    root = branches[None][0]
    return grow(Tree(root), root)


def _bits(rate: float) -> str:
    """Return bytes per second as people say them of a link."""
    size, unit = next((size, unit) for size, unit in _UNITS if rate * 8 >= size or size == 1.0)
    return f"{rate * 8 / size:g} {unit}"


def _complain(message: str, hint: str) -> int:
    print(f"error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
