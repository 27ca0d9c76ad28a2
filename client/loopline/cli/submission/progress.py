"""How far reading, hashing and uploading are, on a terminal; nothing anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from loopline.cli.common import stderr

Tell = Callable[[int], None]


@contextmanager
def bytes_bar(doing: str, total_bytes: int) -> Iterator[Tell]:
    """Hears of so many bytes more."""
    columns = (TextColumn(doing), BarColumn(24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _progress(*columns) as progress:
        row = progress.add_task(doing, total=total_bytes)
        yield lambda count: progress.advance(row, count)


@contextmanager
def row_count() -> Iterator[Tell]:
    """Hears how many rows there are by now."""
    with _progress(SpinnerColumn(), TextColumn("{task.completed:,} rows read")) as progress:
        row = progress.add_task("")
        yield lambda count: progress.update(row, completed=count)


def _progress(*columns: ProgressColumn) -> Progress:
    console = stderr()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
