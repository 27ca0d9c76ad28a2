"""Output that all experiments share: a console of one width, the computing effort, and JSON without NaN."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from loopline_simulator.progress import peak_memory_bytes

_WIDTH = 100


def wide_console() -> Console:
    """Return a console of 100 columns, or of the terminal's width if that is less."""
    return Console(highlight=False, width=min(_WIDTH, Console().width) if Console().is_terminal else _WIDTH)


def effort(runs: int, events: int, took_s: float) -> str:
    """Return a line about the computation's size, time and memory."""
    peak = peak_memory_bytes()
    memory = f"; at most {peak / 1e6:,.0f} MB in a process" if peak else ""
    return f"{runs} runs, {events:,} events in {took_s:.1f} s: {events / took_s:,.0f} events per second{memory}"


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity by null, as JSON requires."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
