"""Output files of tasks: one by one, and those of a whole job as a ZIP archive."""

from __future__ import annotations

from contextlib import aclosing
from urllib.parse import quote

from aiohttp import web

from loopline_master.files.retained import RetainedFiles
from loopline_master.files.whole_files import WholeFiles
from loopline_master.files.zips import Archive
from loopline_master.http.answers import StoredFile, begin_stream, preferred
from loopline_master.http.auth import READERS, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.lookups import found, job_view
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import JobNumber, OutputPath, TaskNumber
from loopline_master.http.routes.files import BYTES
from loopline_master.store import Store
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import OutputFiles

routes = Routes("outputs")

_ZIP = "application/zip"

MAX_ARCHIVED = 100_000
"""Files in one archive. Its directory, which comes last, is held in memory: about 100 MB for this many."""


@routes("GET /jobs/{job}/tasks/{task}/outputs", READERS)
async def list_outputs(store: Store, job: JobNumber, task: TaskNumber) -> OutputFiles:
    """List the output files of a task, by the outputs that its job declares.

    For a failed task these are the files of its last attempt, which `outputs.zip` does not include.
    """
    task_id = TaskId(job, task)
    files = await store.files.of_task(task_id)
    if files is None:
        found(await store.tasks.detail(task_id), f"task {task_id}")
    return OutputFiles(items=list(files or ()))


@routes("GET /jobs/{job}/tasks/{task}/outputs/{path}", READERS, media_type=BYTES, rest="path", declines=(410,))
async def get_output(
    store: Store, files: RetainedFiles, whole: WholeFiles, job: JobNumber, task: TaskNumber, path: OutputPath
) -> web.FileResponse:
    """Return one output file of a task, or a range of its bytes."""
    task_id = TaskId(job, task)
    outputs = found(await store.files.of_task(task_id), f"output of task {task_id}")
    file = found(next((file for file in outputs if file.path == path), None), f"output {path} of task {task_id}")
    headers = {"Content-Type": BYTES, **_attached(path.rpartition("/")[2])}
    answer = StoredFile(await files.path(job, file.sha256), headers)
    whole.while_sent(file.sha256, answer.cut_off)
    return answer


@routes("GET /jobs/{job}/outputs.zip", READERS, media_type=_ZIP, also=BYTES, declines=(410, 429, 503))
async def get_archive(
    store: Store, files: RetainedFiles, streams: OpenStreams, caller: Caller, request: web.Request, job: JobNumber
) -> web.StreamResponse:
    """Return all output files of a job so far as a ZIP archive: `3/x.csv` is from task 3.

    The archive's `MISSING.txt` names files that are no longer stored.
    """
    await job_view(store, job)
    await _check_archive(store, files, job)
    with streams.seat(caller):
        headers = {"Content-Type": preferred(request, _ZIP, BYTES), **_attached(f"job-{job}.zip")}
        response = await begin_stream(request, headers)
        if request.method != "HEAD":
            await _send_archive(store, files, job, response)
    return response


async def _check_archive(store: Store, files: RetainedFiles, job: int) -> None:
    """Raises LooplineError unless at least one output file of the job is stored."""
    reason = LooplineError(
        "no_output",
        f"there are no output files of job {job}",
        "the outputs of its spec name the files to return; `loopline explain` shows how far it is",
        status=404,
    )
    async with aclosing(store.files.of_job(job)) as tasks:
        async for file in (file async for task in tasks for file in task.outputs):
            try:
                await files.path(job, file.sha256)
            except LooplineError as error:
                reason = error
            else:
                return
    raise reason


async def _send_archive(store: Store, files: RetainedFiles, job: int, response: web.StreamResponse) -> None:
    """Send the archive. If it cannot be finished, break the connection, so that it does not look complete."""
    count, missing = 0, list[str]()
    async with aclosing(store.files.of_job(job)) as tasks, Archive() as archive:
        async for task in tasks:
            count += len(task.outputs)
            if count > MAX_ARCHIVED:
                message = f"job {job} has more than {MAX_ARCHIVED:,} output files"
                raise LooplineError("too_many_files", message, f"download them with `loopline fetch {job} DIR`")
            for file in task.outputs:
                name = f"{task.number}/{file.path}"
                try:
                    path = await files.path(job, file.sha256)
                except LooplineError as error:
                    missing.append(f"{name}: {error.message}")
                    continue
                async with archive.add(name, path, task.finished_at, executable=file.executable) as pieces:
                    async for piece in pieces:
                        await response.write(piece)
        if missing:
            await response.write(archive.add_text("MISSING.txt", "\n".join(missing) + "\n"))
        await response.write(archive.end())


def _attached(name: str) -> dict[str, str]:
    """Return headers that have a browser save the file and never show it: a task may have written anything."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
