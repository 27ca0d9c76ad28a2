"""The production code for the house rules: each file parsed once, and faults reported with their place."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "loopline_shared": "shared",
    "loopline_master": "master",
    "loopline_worker": "worker",
    "loopline": "client",
    "loopline_simulator": "simulator",
    "loopline_migrations": "migrations",
}
"""Source root of each import package."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of production code."""

    path: Path  # from the root of the repository
    module: str  # its dotted name
    text: str
    tree: ast.Module

    def at(self, node: ast.AST, fault: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {fault}"

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The nodes of the tree, for many rules look at each."""
        return list(ast.walk(self.tree))

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))


_NOT_OURS = {".venv", ".bench", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache"}


@cache
def tracked() -> frozenset[str]:
    """Return the paths of all files that git tracks or is about to; of all files where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # an unpacked source distribution
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        listed = [
            path.as_posix() for path in files if not (path.parts[0] in _NOT_OURS or "__pycache__" in path.parts)
        ]
    return frozenset(path for path in listed if (ROOT / path).exists())


@cache
def sources(*packages: str) -> tuple[Source, ...]:
    """Return the files of these packages, or of all."""
    roots = tuple(f"{PACKAGES[package]}/{package}/" for package in packages or PACKAGES)
    paths = sorted(path for path in tracked() if path.startswith(roots) and path.endswith(".py"))
    return tuple(_read(Path(path)) for path in paths)


@cache
def _read(path: Path) -> Source:
    text = (ROOT / path).read_text("utf-8")
    module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    source = Source(path, module, text, ast.parse(text))
    gc.freeze()  # the nodes are as many as all else, and to walk through them again and again takes longer
    return source


def is_migration(source: Source) -> bool:
    """True if the file is one step of the database's history, which stays as it was released."""
    return "versions" in source.path.parts


def refuse(faults: Iterable[str], remedy: str) -> None:
    """Fail with one line for each fault, and the remedy."""
    found = sorted(faults)
    assert not found, f"{len(found)} to mend. {remedy}\n" + "\n".join(found)


def repeated(places: dict[str, list[str]]) -> list[str]:
    """Return a line for each name that has more than one place."""
    return [f"{name}: {', '.join(sorted(where))}" for name, where in places.items() if len(where) > 1]


def longer_than(counted: Sequence[tuple[str, int]], most: int) -> list[str]:
    return [f"{place}: {count}, at most {most}" for place, count in counted if count > most]
