"""How every experiment answers: on a console of one width, with what it cost, and as JSON that has no NaN."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from loopline_simulator.progress import peak_memory_bytes

_WIDTH = 100


def wide_console() -> Console:
    """100 columns, or what the terminal has."""
    return Console(highlight=False, width=min(_WIDTH, Console().width) if Console().is_terminal else _WIDTH)


def effort(runs: int, events: int, took_s: float) -> str:
    """How much was done in what time, and with what memory."""
    peak = peak_memory_bytes()
    memory = f"; at most {peak / 1e6:,.0f} MB in a process" if peak else ""
    return f"{runs} runs, {events:,} events in {took_s:.1f} s: {events / took_s:,.0f} events per second{memory}"


def without_nan(value: Any) -> Any:
    """For JSON, which knows neither NaN nor infinity: null in their place."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
