"""What experiments print: tables for people in at most 100 columns, or JSON; and how fast it was."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console

from simulator.progress import peak_memory_bytes

_WIDTH = 100


def console() -> Console:
    """Of the terminal's width, where that is less."""
    width = Console().width if Console().is_terminal else _WIDTH
    return Console(highlight=False, width=min(_WIDTH, width))


def print_json(document: Any) -> None:
    """What is no number is null."""
    print(json.dumps(_without_nan(document), indent=1))


def speed(runs: int, events: int, took_s: float) -> str:
    """How much was done, how fast, and in how much memory."""
    peak = peak_memory_bytes()
    memory = f"; at most {peak / 1e6:,.0f} MB in a process" if peak else ""
    return f"{runs} runs, {events:,} events in {took_s:.1f} s: {events / took_s:,.0f} events per second{memory}"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
