"""``loopline fetch``: what all tasks of a job wrote, as files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.markup import escape
from rich.progress import Progress
from rich.text import Text

from loopline.cli import human
from loopline.cli.common import PATIENCE_S, PLAIN, Common, stderr
from loopline.cli.subjects import Job
from loopline.client import AsyncClient
from shared.api import JobView, TaskView
from shared.errors import LooplineError
from shared.model import Stream

AT_ONCE = 8

_STREAMS: tuple[tuple[Stream, str], ...] = (("stdout", "out"), ("stderr", "err"))
_SAME_TIME_S = 0.01  # what file systems may make of a time


@dataclass
class Tally:
    """What was done; the document of ``--json``."""

    job: int
    folder: str
    fetched: int = 0  # files
    present: int = 0  # files that were there already
    bytes: int = 0
    unfinished: int = 0  # tasks


async def fetch(job: Job, folder: Path, /, *, common: Common = PLAIN) -> None:
    """Bring what all tasks wrote into a folder: `3.out` and `3.err` for task 3.

    Run it again after an interruption, or when more tasks have finished: what is complete is not fetched again.
    A file bears the time at which its task finished.

    Parameters
    ----------
    job
        Its number.
    folder
        Where to; made if need be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        async with common.client(PATIENCE_S) as client:
            tally = await _bring_all(client, await client.job(job), folder)
    except OSError as error:
        hint = "free some space there, or name another folder"
        raise LooplineError("folder", f"cannot write into {folder}: {error}", hint) from None
    common.show(asdict(tally), lambda: _summary(tally))


async def _bring_all(client: AsyncClient, job: JobView, folder: Path) -> Tally:
    tally = Tally(job.id, str(folder))
    console = stderr()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        row = progress.add_task(escape(f"job {job.id} {job.name}"), total=job.task_count)

        async def bring(task: TaskView) -> None:
            await _bring(client, task, folder, tally)
            progress.advance(row)

        await _each(client.tasks(job.id), bring)
    return tally


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


async def _bring(client: AsyncClient, task: TaskView, folder: Path, tally: Tally) -> None:
    if task.finished_at is None:
        tally.unfinished += 1
        return
    for stream, suffix in _STREAMS:
        file = folder / f"{task.number}.{suffix}"
        if _is_from(file, task.finished_at):
            tally.present += 1
        else:
            size = await _save(client, task, stream, file)  # others count meanwhile
            tally.bytes += size
            tally.fetched += 1


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


def _summary(tally: Tally) -> Text:
    line = Text(f"{human.plural(tally.fetched, 'file')} ({human.amount(tally.bytes)}) brought into {tally.folder}")
    if tally.present:
        line.append(f", {tally.present:,} were there already")
    if tally.unfinished:
        line.append(f"\n{human.plural(tally.unfinished, 'task')} not finished: run this again later", "yellow")
    return line
