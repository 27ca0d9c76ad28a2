"""``simulate full``: its output, and that a broken promise is named and is an error."""

import dataclasses
import json
import re

import pytest

from loopline_simulator.__main__ import main
from loopline_simulator.experiments import full
from loopline_simulator.full import Summary

ONE = ["full", "--seeds", "1", "--policies", "round-robin", "--processes", "1", "--jobs", "3", "--machines", "2"]


def test_a_world_is_lived_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)["runs"]
    assert (summary["seed"], summary["policy"], summary["jobs"], summary["broken"]) == (1, "round-robin", 3, "")
    assert main([*ONE, "--checkpoints", "1"]) == 0
    shown = capsys.readouterr().out
    assert "round-robin" in shown
    assert int(re.search(r"saves +([\d,]+)", shown)[1].replace(",", "")) > 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "order", "code"),
    [({"broken": "an index lies"}, "hold", 1), ({"passings": 2}, "hold", 1), ({"passings": 2}, "none", 0)],
)
def test_broken_promise_is_named(
    change: dict[str, object],
    order: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dataclasses.replace(Summary(seed=7, policy="round-robin", order=order), **change)
    monkeypatch.setattr(full, "run_world", lambda world: found)
    assert main([*ONE, "--order", order]) == code
    assert ("seed 7, round-robin: " in capsys.readouterr().out) == bool(code)
