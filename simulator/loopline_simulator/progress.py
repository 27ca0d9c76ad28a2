"""The progress of a sweep, shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(
    what: str, total: int, events_of: Callable[[Any], int] = lambda answer: 0
) -> Iterator[Callable[[Any], None]]:
    """Yield a function that advances the bar by one answer; ``events_of`` an answer are summed and shown per
    second.
    """
    console, events = Console(stderr=True), 0
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(compact=True))
    rate = TextColumn("{task.fields[rate]}", style="dim")
    columns = (TextColumn(what), BarColumn(bar_width=30), MofNCompleteColumn(), *times, rate)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        row = progress.add_task("", total=total, rate="")

        def shown(answer: Any) -> None:
            nonlocal events
            events += events_of(answer)
            elapsed = progress.tasks[0].elapsed or 0.0
            progress.update(row, advance=1, rate=f"{events / elapsed:,.0f} events/s" if events and elapsed else "")

        yield shown


def peak_memory_bytes() -> int:
    """Return the peak memory of this process and its finished children; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(max(peaks)) * (1 if sys.platform == "darwin" else 1024)
