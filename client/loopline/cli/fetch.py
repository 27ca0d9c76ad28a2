"""``loopline fetch``: the outputs and logs of all tasks of a job, as files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.progress import Progress
from rich.text import Text

from loopline.cli.common import PATIENCE_S, PLAIN, Common, Subject, stderr
from loopline.cli.errors import usage
from loopline.cli.follow import interruptible
from loopline.cli.render import human
from loopline.client import AsyncClient
from loopline.transfer import checkpoints
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline.transfer.layout import DEFAULT, Layout, LayoutError, check_names
from loopline_shared.errors import LooplineError
from loopline_shared.model import Stream, TaskId, TaskState
from loopline_shared.rest.bodies import JobDetail, TaskView

AT_ONCE = 8
PLACE = Parameter(metavar="FOLDERS")

_STREAMS: tuple[tuple[Stream, str], ...] = (("stdout", "out"), ("stderr", "err"))
_SAME_TIME_S = 0.01  # precision of times on some file systems


@dataclass
class FetchReport:
    """Counts of one `loopline fetch`: the document of ``--json``."""

    job: int
    folder: str
    outputs: int = 0  # files fetched
    logs: int = 0  # files fetched
    present: int = 0  # files that were there already
    bytes: int = 0
    unfinished: int = 0  # tasks
    failed: int = 0  # tasks whose outputs were not asked for
    gone: int = 0  # failed tasks whose outputs are no longer kept
    why_gone: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """Report as JSON."""
        return {"fetched": self.outputs + self.logs, **asdict(self)}


async def fetch(
    job: Subject,
    folder: Path,
    /,
    *,
    layout: Annotated[str, PLACE] = DEFAULT,
    failed: bool = False,
    checkpoint: bool = False,
    common: Common = PLAIN,
) -> None:
    """Download the outputs and logs of all tasks: `3.out`, `3.err` and the folder `3` for task 3.

    Of a task on several nodes each member has its own, by rank: `3.0.out`, `3.1.out` and the folders `3/0`, `3/1`.

    Run it again after an interruption, or when more tasks have finished: complete files are not fetched again. A log
    has the time at which its task finished; outputs are compared by their content.

    Parameters
    ----------
    job
        Number of the job; with --checkpoint a task such as 12.3.
    folder
        Folder to download to; made if it does not exist.
    layout
        Folder of each task in it, named by its parameters: '{lr}/{seed}/' rather than '{task}/'.
    failed
        Also download the outputs that failed tasks have left.
    checkpoint
        Download the newest checkpoint of this task instead: its files, and its output so far as `.stdout` and
        `.stderr`.
    """
    if checkpoint != isinstance(job, TaskId):
        raise usage("a checkpoint is of one task", "loopline fetch --checkpoint 12.3 FOLDER")
    try:
        if isinstance(job, TaskId):
            await _fetch_checkpoint(job, folder, common)
        else:
            await _fetch_job(job, folder, layout, failed=failed, common=common)
    except LayoutError as error:
        raise usage(str(error)) from None
    except OSError as error:
        hint = "free some space there, or name another folder"
        raise LooplineError("folder", f"cannot write into {folder}: {error}", hint) from None


async def _fetch_checkpoint(task: TaskId, folder: Path, common: Common) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with common.client(PATIENCE_S) as client:
        fetched = await checkpoints.fetch(client, task, folder)
    count = human.plural(fetched["files"], "file")
    common.show(fetched, lambda: Text(f"{count} of task {task} downloaded to {folder}"))


async def _fetch_job(job: int, folder: Path, layout: str, *, failed: bool, common: Common) -> None:
    """Download the files of a job. Raises LayoutError, OSError."""
    template = Layout(layout)
    folder.mkdir(parents=True, exist_ok=True)
    again = ["fetch", str(job), str(folder), *(["--layout", layout] if layout != DEFAULT else [])]
    again += ["--failed"] if failed else []
    with interruptible(common, "what is here stays; fetch the rest with", *again):
        async with common.client(PATIENCE_S) as client:
            report = await _Fetching(client, await client.job(job), folder, template, failed=failed).all()
    common.show(report.document, lambda: _summary(report))


class _Fetching:
    """Downloads the files of one job's tasks."""

    def __init__(self, client: AsyncClient, job: JobDetail, folder: Path, layout: Layout, *, failed: bool) -> None:
        """``failed``: also the outputs that failed tasks have left."""
        self._client = client
        self._states = (TaskState.SUCCEEDED, TaskState.FAILED) if failed else (TaskState.SUCCEEDED,)
        self._job = job
        self._folder = OutputFolder(folder)
        self._layout = layout
        self._places: dict[int, str] = {}  # folders of tasks, where the layout names their parameters
        self._report = FetchReport(job.id, str(folder))

    async def all(self) -> FetchReport:
        """Download everything and return the report. Raises LayoutError before the first file."""
        console, job = stderr(), self._job
        if self._layout.needs_parameters:
            await _each(self._client.tasks(job.id, parameters=True), self._find_place)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            row = progress.add_task(escape(f"job {job.id} {job.name}"), total=job.task_count)

            async def download(task: TaskView) -> None:
                await self._download(task)
                progress.advance(row)

            await _each(self._client.tasks(job.id), download)
        self._folder.clear()
        return self._report

    async def _download(self, task: TaskView) -> None:
        if task.finished_at is None:
            self._report.unfinished += 1
            return
        place = self._places.get(task.number) or self._layout.folder(self._job.id, task.number, {})
        nodes = self._job.spec.nodes
        for rank in range(nodes):
            await self._download_logs(task, place if nodes == 1 else f"{place}.{rank}", rank)
        if self._job.spec.outputs and task.state is TaskState.FAILED and task.state not in self._states:
            self._report.failed += 1
        elif self._job.spec.outputs and task.state in self._states:
            await self._download_outputs(task, place)

    async def _download_outputs(self, task: TaskView, place: str) -> None:
        outputs = await outputs_of(self._client, task.id)
        check_names([output.path for output in outputs])
        try:
            downloaded = await self._folder.download(self._client, task.id, outputs, place)
        except LooplineError as error:
            if error.status != 410 or task.state is not TaskState.FAILED:
                raise
            self._report.gone, self._report.why_gone = self._report.gone + 1, error.message
            return
        self._report.outputs += downloaded.fetched
        self._report.present += downloaded.present
        self._report.bytes += downloaded.bytes

    async def _download_logs(self, task: TaskView, place: str, rank: int) -> None:
        for stream, suffix in _STREAMS:
            file = self._folder.target(f"{place}.{suffix}")
            if _is_from(file, task.finished_at or 0.0):
                self._report.present += 1
            else:
                size = await _save(self._client, task, stream, file, rank)
                self._report.bytes += size
                self._report.logs += 1

    async def _find_place(self, task: TaskView) -> None:
        self._places[task.number] = self._layout.folder(self._job.id, task.number, task.parameters or {})


async def _each(tasks: AsyncIterator[TaskView], act: Callable[[TaskView], Awaitable[None]]) -> None:
    """Act on several tasks at once; the list is read as fast as tasks are done."""
    places = asyncio.Semaphore(AT_ONCE)

    async def act_on(task: TaskView) -> None:
        try:
            await act(task)
        finally:
            places.release()

    try:
        async with asyncio.TaskGroup() as group:
            async for task in tasks:
                await places.acquire()
                group.create_task(act_on(task))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _is_from(file: Path, moment: float) -> bool:
    """True if the file is complete: then it has its task's time. A task that was run again has another time."""
    return file.exists() and abs(file.stat().st_mtime - moment) < _SAME_TIME_S


async def _save(client: AsyncClient, task: TaskView, stream: Stream, file: Path, rank: int) -> int:
    """Write the stream beside the file, replace the file when the stream is complete, and return its size."""
    part = file.with_name(f"{file.name}.part")
    with part.open("wb") as sink:
        try:
            async with aclosing(client.output(task.id, stream, rank=rank)) as pieces:
                async for piece in pieces:
                    sink.write(piece)
        except LooplineError as error:
            if error.code != "no_output":  # the task was cancelled before it ran
                raise
        size = sink.tell()
    finished = task.finished_at or 0.0
    os.utime(part, (finished, finished))
    part.replace(file)
    return size


def _summary(report: FetchReport) -> Text:
    kinds = f"{human.plural(report.outputs, 'output')}, {human.plural(report.logs, 'log')}"
    count = human.plural(report.outputs + report.logs, "file")
    line = Text(f"{count} downloaded to {report.folder.rstrip('/')}/ ({kinds}, {human.amount(report.bytes)})")
    if report.present:
        line.append(f", {report.present:,} were there already")
    if report.unfinished:
        line.append(f"\n{human.plural(report.unfinished, 'task')} not finished: run this again later", "yellow")
    if report.failed:
        tasks = human.plural(report.failed, "task")
        line.append(f"\n{tasks} failed: --failed also downloads what failed tasks have left", "yellow")
    if report.gone:
        line.append(f"\nnothing of {human.plural(report.gone, 'failed task')}: {report.why_gone}", "yellow")
    return line
