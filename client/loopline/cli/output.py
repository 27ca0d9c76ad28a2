"""Commands that print the output of tasks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from csv import writer
from typing import Annotated

from cyclopts import Parameter

from loopline import predecessors
from loopline.cli import follow as following
from loopline.cli.common import PATIENCE_S, PLAIN, Common, JobNumber, Subject
from loopline.cli.errors import usage
from loopline.cli.render.printable import Printable, printable
from loopline_shared import model
from loopline_shared.ids_and_states import TaskId
from loopline_shared.rest import bodies


async def logs(
    task: Subject,
    /,
    *,
    stderr: bool = False,
    rank: int = 0,
    follow: Annotated[bool, Parameter(alias="-f")] = False,
    find: str | None = None,
    common: Common = PLAIN,
) -> None:
    """Print the output of a task. On a terminal its colours are kept, and other control characters shown as ^X.

    Parameters
    ----------
    task
        A task such as 12.3, or a job of one task such as 12.
    stderr
        Print stderr instead of stdout.
    rank
        Of a task on several nodes: the member whose output it is.
    follow
        Go on printing while the task writes, until it is over.
    find
        Print only the lines of stdout and stderr that contain this text, in capitals or not; of a job, those of all
        its tasks.
    """
    if find is not None:
        await _find(task, find, common)
        return
    stream: model.Stream = "stderr" if stderr else "stdout"
    if not isinstance(task, TaskId):
        task = await _only_task(task, common)
    again = ["logs", str(task), *["--stderr"] * stderr, *["--follow"] * follow]
    with following.interruptible(common, f"task {task} is not touched by this; read on with", *again):
        async with common.client() as client:
            if follow:
                await predecessors.until_entered(client, await client.job(task.job))
            async with aclosing(client.output(task, stream, follow=follow, rank=rank)) as pieces:
                if common.json:
                    text = b"".join([piece async for piece in pieces]).decode(errors="replace")
                    common.show({"task": str(task), "stream": stream, "text": text}, str)
                    return
                await _print_pieces(pieces)


async def _find(subject: TaskId | int, text: str, common: Common) -> None:
    """Print the lines of a job, or of one task, that contain the text, each with its task, stream and number."""
    job, only = (subject.job, subject) if isinstance(subject, TaskId) else (subject, None)
    async with common.client() as client, aclosing(client.lines(job, text)) as lines:
        async for line in lines:
            if only not in (None, line.task):
                continue
            if common.json:
                print(line.model_dump_json(), flush=True)
            else:
                print(f"{line.task} {line.stream}:{line.line}: {printable(line.text)}", flush=True)


async def _only_task(job: int, common: Common) -> TaskId:
    """Return the task of a job that has one. Raises LooplineError (usage) if it has more."""
    async with common.client() as client:
        count = (await client.job(job)).task_count
    if count > 1:
        hint = f"name one of them, such as {job}.1; `loopline results {job}` prints the output of all"
        raise usage(f"job {job} has {count:,} tasks", hint)
    return TaskId(job, 1)


async def _print_pieces(pieces: AsyncIterator[bytes]) -> None:
    """Print output as it comes: byte for byte into a pipe or a file, and what is printable of it on a terminal."""
    write, output = sys.stdout.buffer.write, Printable() if sys.stdout.isatty() else None
    async for piece in pieces:
        write(output.add(piece) if output else piece)
        sys.stdout.flush()
    if output:
        write(output.end())


async def results(
    job: JobNumber,
    /,
    *,
    tag: Annotated[bool | None, Parameter(negative="--no-tag")] = None,
    csv: Annotated[bool, Parameter(negative=())] = False,
    common: Common = PLAIN,
) -> None:
    """Print the output of every task, as the tasks finish; `--json` prints one result a line.

    Each task's output ends with a line break, so that two never share a line. The command fails if the job can never
    start, because a job before it failed or was cancelled.

    Parameters
    ----------
    job
        Number of the job.
    tag
        Begin each line with its task, such as 12.3, and a tab. On a terminal, jobs of several tasks have it.
    csv
        Print a table once the job is over: a row for each task, with its parameters, metrics and output.
    """
    with following.interruptible(common, f"job {job} continues; read its results again with", "results", str(job)):
        async with common.client(PATIENCE_S) as client:
            view = await client.job(job)
            await predecessors.until_entered(client, view)
            has_tags = sys.stdout.isatty() and view.task_count > 1 if tag is None else tag
            async with aclosing(client.results(job)) as lines:
                if csv:
                    _print_table([result async for result in lines])
                async for result in lines:
                    _print(result, common, has_tags=has_tags)


def _print_table(results: list[bodies.TaskResult]) -> None:
    results.sort(key=lambda result: result.number)
    parameters = dict.fromkeys(name for result in results for name in result.parameters)
    metrics = dict.fromkeys(name for result in results for name in result.metrics or {})
    table = writer(sys.stdout, lineterminator="\n")
    table.writerow(["task", "state", *parameters, *metrics, "output"])
    for result in results:
        values = [result.parameters.get(name, "") for name in parameters]
        values += [(result.metrics or {}).get(name, "") for name in metrics]
        text = result.stdout.removesuffix("\n")
        table.writerow([str(result.id), result.state, *values, printable(text) if sys.stdout.isatty() else text])


def _print(result: bodies.TaskResult, common: Common, *, has_tags: bool) -> None:
    if common.json:
        print(result.model_dump_json(), flush=True)
        return
    text = printable(result.stdout) if sys.stdout.isatty() else result.stdout
    if text and not text.endswith("\n"):
        text += "\n"
    if has_tags:
        text = "".join(f"{result.id}\t{line}" for line in text.splitlines(keepends=True))
    print(text, end="", flush=True)
    if result.stdout_cut:
        print(f"task {result.id} wrote more: `loopline logs {result.id}` shows what was kept", file=sys.stderr)
