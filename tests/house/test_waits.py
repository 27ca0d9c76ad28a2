"""How tests wait: for facts, within limits that a busy computer keeps; and which run when."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.full import FILES, TESTS, spread
from tests.house.sources import ROOT, refuse, tracked

PLACES = ("tests/live/", "tests/faults/", "tests/docs/", "tests/web/", "tests/power/", "tests/snakemake/")
SHORTEST_LEASE_S = 10.0


def test_no_lease_ends_while_a_busy_computer_pauses() -> None:
    found = [
        f"{path}:{line}: a lease of {lease:g} s"
        for path, tree, lines in _tests()
        for line, lease in _leases(tree)
        if lease < SHORTEST_LEASE_S and "#" not in lines[line - 1]
    ]
    refuse(found, "Give it at least 10 s, or say in a comment on that line why it must be shorter.")


def test_sleeps_say_why() -> None:
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, tree, lines in _tests()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and re.fullmatch(r"(time\.|asyncio\.)?sleep", ast.unparse(node.func))
        and "#" not in lines[node.lineno - 1]
    ]
    refuse(found, "Wait for a fact (tests/live/grid.py, wait_for), or say in a comment on that line why it sleeps.")


def test_files_left_to_make_test_full_exist() -> None:
    known = tracked()
    lost = [path for path in FILES if not any(one.startswith(path) for one in known)]
    for test in TESTS:
        path, _, name = test.partition("[")[0].partition("::")
        if path not in known or (name and f"def {name}(" not in (ROOT / path).read_text("utf-8")):
            lost.append(test)
    refuse(lost, "Correct tests/full.py: there is no such file or test.")


def test_long_tests_are_spread_between_files_and_none_is_lost() -> None:
    live = [f"tests/live/test_a.py::test_{number}" for number in range(3)]
    others = [f"tests/{file}/test_b.py::test_{number}" for file in ("api", "cli", "store") for number in range(2)]
    tests = [*live, *others]
    assert [tests[number] for number in spread(tests)] == [
        *(live[0], *others[:2]),
        *(live[1], *others[2:4]),
        *(live[2], *others[4:]),
    ]
    assert spread(live) == [0, 1, 2]
    assert spread(others) == [*range(6)]


def _tests() -> Iterator[tuple[str, ast.Module, list[str]]]:
    for path in tracked():
        if path.startswith(PLACES) and path.endswith(".py"):
            text = (ROOT / path).read_text("utf-8")
            yield path, ast.parse(text), text.splitlines()


def _leases(tree: ast.Module) -> Iterator[tuple[int, float]]:
    """Yield line and seconds of each lease: of ``lease_s=2`` and of ``"--lease-s", "2"``."""
    for node in ast.walk(tree):
        values = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        for flag, value in pairwise(values):
            if isinstance(flag, ast.Constant) and flag.value == "--lease-s" and isinstance(value, ast.Constant):
                yield value.lineno, float(value.value)
        if isinstance(node, ast.keyword) and node.arg == "lease_s" and isinstance(node.value, ast.Constant):
            yield node.value.lineno, float(node.value.value)
