"""Live progress bars of jobs, one row each; nothing is shown outside a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from loopline.cli.render import human, tables
from loopline_shared.rest.bodies import JobView

Show = Callable[[JobView, str], None]
"""Callback that shows the progress of a job, and a remark."""


@contextmanager
def bars(console: Console) -> Iterator[Show]:
    """Show progress bars during the block, and yield the callback that updates them."""
    rows: dict[int, TaskID] = {}
    remaining = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
    columns = (_Name(), BarColumn(bar_width=24), _Counts(), _Rate(), remaining, _note)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def show(job: JobView, note: str) -> None:
            if job.id not in rows:
                rows[job.id] = progress.add_task("", total=job.task_count, job=job, note=note)
            done = job.tasks.succeeded + job.tasks.failed + job.tasks.cancelled
            told = 0.0 if job.progress is None else job.progress * job.task_count
            progress.update(rows[job.id], completed=max(done, told), job=job, note=note)

        yield show


class _Name(ProgressColumn):
    def render(self, task: Task) -> Text:
        job: JobView = task.fields["job"]
        return Text.assemble(f"job {job.id} ", (human.short(job.name), "bold"))


class _Counts(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(tables.counts(task.fields["job"]))


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed and not task.finished else "", "dim")


_note = TextColumn("{task.fields[note]}", style="dim", markup=False)
