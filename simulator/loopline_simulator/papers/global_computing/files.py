"""Scenario files: the user's own, and the paper's tables, which come with the simulator."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline_shared.errors import LooplineError
from loopline_shared.plain_words import plain
from loopline_simulator.papers.global_computing.scenario import QueueingScenario
from loopline_simulator.papers.global_computing.traffic import TraceTraffic, Traffic, read_trace

TABLES = (1, 2, 3, 4)
READINGS = ("text", "fitted")
"""Readings of the paper: its text, and assumptions fitted to its published figures."""


def paper_scenarios(table: int, reading: str) -> list[QueueingScenario]:
    """Return the settings of one of the paper's tables."""
    name = f"table-{table}-{reading}.toml"
    return _scenarios(name, files(__package__).joinpath("scenarios", name).read_text("utf-8"))


def read_scenarios(file: Path) -> list[QueueingScenario]:
    """Return every variant in a file. Raises LooplineError with the place of a mistake."""
    try:
        scenarios = _scenarios(str(file), file.read_text("utf-8"))
    except OSError as error:
        raise LooplineError("usage", f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise LooplineError("usage", f"{file}: {error}", "fix it; docs/global-computing.md has an example") from None
    return [_with_traces(scenario, file.parent) for scenario in scenarios]


def _scenarios(name: str, text: str) -> list[QueueingScenario]:
    document = tomllib.loads(text)
    variants = document.pop("variants", [{}])
    if not isinstance(variants, list) or not variants or not all(isinstance(variant, dict) for variant in variants):
        raise LooplineError("usage", f"{name}: variants are tables", "write [[variants]] above what each one changes")
    return [_scenario(name, merged(document, variant)) for variant in variants]


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` changed by ``change``: tables key by key (unless their ``kind`` changes), all else as
    a whole.
    """
    return {**base, **{key: _changed(base.get(key), value) for key, value in change.items()}}


def _changed(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return merged(old, new) if new.get("kind", old.get("kind")) == old.get("kind") else new


def _scenario(name: str, content: Mapping[str, Any]) -> QueueingScenario:
    try:
        return QueueingScenario.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = "is missing" if first["type"] == "missing" else plain(first)
        got = first["input"]
        value = "" if isinstance(got, dict | list) else f", got {got!r:.60}"
        message = f"{name}: {place}: {what}{value}" if place else f"{name}: {what}"
        raise LooplineError("usage", message, "docs/global-computing.md lists the parts of a scenario") from None


def _with_traces(scenario: QueueingScenario, folder: Path) -> QueueingScenario:
    """Resolve the scenario's trace files relative to the file that names them."""

    def found(traffic: Traffic) -> Traffic:
        return (
            trace(folder / traffic.file, absolute=traffic.absolute) if isinstance(traffic, TraceTraffic) else traffic
        )

    networks = [network.model_copy(update={"traffic": found(network.traffic)}) for network in scenario.networks]
    return scenario.model_copy(update={"networks": networks})


def trace(file: Path, *, absolute: bool = False) -> TraceTraffic:
    """Return traffic read from the file. Raises LooplineError if the file is unusable."""
    read_trace(str(file.absolute()))
    return TraceTraffic(file=str(file.absolute()), absolute=absolute)
