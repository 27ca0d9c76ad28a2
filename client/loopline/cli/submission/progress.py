"""Progress of reading, hashing and uploading; nothing is shown outside a terminal."""

from __future__ import annotations

from collections.abc import Iterator
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
from loopline.transfer.files import OnProgress


@contextmanager
def bytes_bar(doing: str, total_bytes: int) -> Iterator[OnProgress]:
    """Show a bar during the block; the callback takes the number of bytes that were done."""
    columns = (TextColumn(doing), BarColumn(24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _progress(*columns) as progress:
        row = progress.add_task(doing, total=total_bytes)
        yield lambda count: progress.advance(row, count)


@contextmanager
def row_count() -> Iterator[OnProgress]:
    """Show a count during the block; the callback takes the number of rows so far."""
    with _progress(SpinnerColumn(), TextColumn("{task.completed:,} rows read")) as progress:
        row = progress.add_task("")
        yield lambda count: progress.update(row, completed=count)


def _progress(*columns: ProgressColumn) -> Progress:
    console = stderr()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
