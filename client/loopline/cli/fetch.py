"""``loopline fetch``: what all tasks of a job wrote and left, as files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.progress import Progress
from rich.text import Text

from loopline.cli.common import PATIENCE_S, PLAIN, Common, stderr
from loopline.cli.errors import usage
from loopline.cli.render import human
from loopline.cli.subjects import Job
from loopline.client import AsyncClient
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline.transfer.layout import DEFAULT, Layout, LayoutError, check_names
from loopline_shared.errors import LooplineError
from loopline_shared.model import Stream, TaskState
from loopline_shared.rest.bodies import JobDetail, TaskView

AT_ONCE = 8
PLACE = Parameter(metavar="FOLDERS")

_STREAMS: tuple[tuple[Stream, str], ...] = (("stdout", "out"), ("stderr", "err"))
_SAME_TIME_S = 0.01  # what file systems may make of a time


@dataclass
class FetchReport:
    """What was done; the document of ``--json``."""

    job: int
    folder: str
    fetched: int = 0  # files
    present: int = 0  # files that were there already
    bytes: int = 0
    unfinished: int = 0  # tasks


async def fetch(
    job: Job, folder: Path, /, *, layout: Annotated[str, PLACE] = DEFAULT, common: Common = PLAIN
) -> None:
    """Bring what all tasks wrote and left into a folder: `3.out`, `3.err` and the folder `3` for task 3.

    Run it again after an interruption, or when more tasks have finished: what is complete is not fetched again.
    What a task printed bears the time at which it finished; files that it left are compared by their content.

    Parameters
    ----------
    job
        Its number.
    folder
        Where to; made if need be.
    layout
        The folder of each task in there, from its parameters: '{lr}/{seed}/' rather than '{task}/'.
    """
    try:
        template = Layout(layout)
        folder.mkdir(parents=True, exist_ok=True)
        async with common.client(PATIENCE_S) as client:
            tally = await _Fetching(client, await client.job(job), folder, template).all()
    except LayoutError as error:
        raise usage(str(error)) from None
    except OSError as error:
        hint = "free some space there, or name another folder"
        raise LooplineError("folder", f"cannot write into {folder}: {error}", hint) from None
    common.show(asdict(tally), lambda: _summary(tally))


class _Fetching:
    """One job's tasks on their way home."""

    def __init__(self, client: AsyncClient, job: JobDetail, folder: Path, layout: Layout) -> None:
        self._client = client
        self._job = job
        self._home = OutputFolder(folder)
        self._layout = layout
        self._tally = FetchReport(job.id, str(folder))

    async def all(self) -> FetchReport:
        console, job = stderr(), self._job
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            row = progress.add_task(escape(f"job {job.id} {job.name}"), total=job.task_count)

            async def bring(task: TaskView) -> None:
                await self._bring(task)
                progress.advance(row)

            await _each(self._client.tasks(job.id), bring)
        self._home.clear()
        return self._tally

    async def _bring(self, task: TaskView) -> None:
        if task.finished_at is None:
            self._tally.unfinished += 1
            return
        place = await self._place(task)
        for stream, suffix in _STREAMS:
            file = self._home.target(f"{place}.{suffix}")
            if _is_from(file, task.finished_at):
                self._tally.present += 1
            else:
                self._count(1, 0, await _save(self._client, task, stream, file))
        if self._job.spec.outputs and task.state is TaskState.SUCCEEDED:
            outputs = await outputs_of(self._client, task.id)
            check_names([output.path for output in outputs])
            brought = await self._home.bring(self._client, task.id, outputs, place)
            self._count(brought.fetched, brought.present, brought.bytes)

    async def _place(self, task: TaskView) -> str:
        parameters = (await self._client.task(task.id)).parameters if self._layout.needs_parameters else {}
        return self._layout.folder(self._job.id, task.number, parameters)

    def _count(self, fetched: int, present: int, size_bytes: int) -> None:
        self._tally.fetched += fetched
        self._tally.present += present
        self._tally.bytes += size_bytes


async def _each(tasks: AsyncIterator[TaskView], act: Callable[[TaskView], Awaitable[None]]) -> None:
    """Several at once; the list is read no faster than they are done."""
    places = asyncio.Semaphore(AT_ONCE)

    async def take(task: TaskView) -> None:
        try:
            await act(task)
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as group:
            async for task in tasks:
                await places.acquire()
                group.create_task(take(task))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _is_from(file: Path, moment: float) -> bool:
    """A file bears its task's time only once it is complete; a task that was run again has another."""
    return file.exists() and abs(file.stat().st_mtime - moment) < _SAME_TIME_S


async def _save(client: AsyncClient, task: TaskView, stream: Stream, file: Path) -> int:
    """Into a file beside it that takes its place when it is complete."""
    part = file.with_name(f"{file.name}.part")
    with part.open("wb") as sink:
        try:
            async with aclosing(client.output(task.id, stream)) as pieces:
                async for piece in pieces:
                    sink.write(piece)
        except LooplineError as error:
            if error.code != "no_output":  # cancelled before it ran: it wrote nothing
                raise
        size = sink.tell()
    finished = task.finished_at or 0.0
    os.utime(part, (finished, finished))
    part.replace(file)
    return size


def _summary(tally: FetchReport) -> Text:
    line = Text(f"{human.plural(tally.fetched, 'file')} ({human.amount(tally.bytes)}) brought into {tally.folder}")
    if tally.present:
        line.append(f", {tally.present:,} were there already")
    if tally.unfinished:
        line.append(f"\n{human.plural(tally.unfinished, 'task')} not finished: run this again later", "yellow")
    return line
