"""The processes of a whole run import the tests in turned orders, so that each compiles its share first."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

TESTS = Path(__file__).parent


def imported(patch: pytest.MonkeyPatch, process: str, *arguments: str, broken: str = "") -> list[str]:
    """Return the modules that a process imports as its run begins, in their order; importing ``broken`` fails."""
    names = list[str]()

    def note(name: str) -> None:
        names.append(name)
        if name == broken:
            raise ImportError(name)

    session: Any = SimpleNamespace(config=SimpleNamespace(args=list(arguments)))
    with patch.context() as inside:
        inside.setenv("PYTEST_XDIST_WORKER", process)
        inside.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
        inside.setattr(importlib, "import_module", note)
        conftest.pytest_sessionstart(session)
    return names


def test_each_process_begins_with_another_part_and_imports_all(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [imported(monkeypatch, f"gw{number}", str(TESTS)) for number in range(4)]
    first = orders[0]
    assert first == sorted(set(first), key=lambda name: name.split("."))
    assert {__name__, "tests.api.test_jobs", "tests.worker.presence.test_buses"} <= set(first)
    assert not any(name.startswith(("tests.compose.", "tests.snakemake.")) for name in first)
    for number, order in enumerate(orders):
        start = len(first) * number // 4
        assert order == first[start:] + first[:start]


def test_a_run_of_a_part_or_of_one_process_imports_what_it_collects_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert imported(monkeypatch, "gw1", str(TESTS / "api")) == []
    assert imported(monkeypatch, "gw1", str(TESTS), str(TESTS / "api")) == []
    assert imported(monkeypatch, "", str(TESTS)) == []


def test_what_cannot_be_imported_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = imported(monkeypatch, "gw1", str(TESTS))
    assert imported(monkeypatch, "gw1", str(TESTS), broken=whole[3]) == whole
