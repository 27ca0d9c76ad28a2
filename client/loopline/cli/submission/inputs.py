"""Inputs of a job: found, hashed, and uploaded unless the master has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from loopline.cli.common import stderr
from loopline.cli.errors import usage
from loopline.cli.submission import missing_inputs, receipt
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import FileOptions, JobDocument
from loopline.cli.submission.progress import bytes_bar
from loopline.cli.submission.sweep import SweepParameters
from loopline.client import AsyncClient
from loopline.transfer import files, input_trees
from loopline.transfer.excluded import Exclusions, read_patterns
from loopline.transfer.files import LocalFile
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import MAX_OWN_INPUTS
from loopline_shared.protocol.templates import names_in, unknown_name
from loopline_shared.rest.bodies import Submission
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import task_at

MAX_LISTED_TASKS = 100_000
"""Maximum number of tasks that may have files of their own: each is listed in the job, with its files."""
LARGE_BYTES = 100_000_000
"""An upload of at least this size is announced, with its largest files."""
_MOST_WORDS = 10
Row = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Inputs of a job, by their paths in the tasks' scratch folders."""

    files: Mapping[str, LocalFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # paths that were excluded
    of_tasks: tuple[tuple[str, Path], ...] = ()  # inputs that name parameters, and where their paths start

    def named_in(self, document: JobDocument) -> JobDocument:
        """Return the job with these inputs beside those that it names already."""
        if not self.files:
            return document
        ours = {name: file.as_input() for name, file in self.files.items()}
        return document | {"inputs": document.get("inputs", {}) | ours}

    def beside(self, others: InputFiles) -> InputFiles:
        """Return these and those others."""
        left_out, of_tasks = (*others.left_out, *self.left_out), (*others.of_tasks, *self.of_tasks)
        return InputFiles({**others.files, **self.files}, left_out, of_tasks)

    async def upload(self, client: AsyncClient) -> None:
        """Upload the inputs that the master does not have."""
        contents = {file.sha256: file for file in self.files.values() if file.has_content}
        if _bytes_of(contents.values()) >= LARGE_BYTES:
            contents = {file.sha256: file for file in await files.missing(client, contents.values())}
            if _bytes_of(contents.values()) >= LARGE_BYTES:
                receipt.note_upload([*contents.values()])
        if contents:
            with bytes_bar("uploading", _bytes_of(contents.values())) as on_progress:
                await files.upload_all(client, contents.values(), on_progress)


async def read(options: FileOptions, file: JobFile | None) -> InputFiles:
    """Return the inputs of the command line and of the list in a job file. Raises LooplineError (usage) if one is
    unusable.
    """
    exclusions = _exclusions(options)
    found: dict[str, LocalFile] = {}
    texts = [text for text in options.input if text != missing_inputs.AUTO]
    given = [text for text in texts if _is_of_tasks(text, Path())]
    of_tasks = [(text, Path()) for text in given]
    if file is not None:
        listed = _listed(file)
        own = [text for text in listed if _is_of_tasks(text, file.folder)]
        of_tasks = [*((text, file.folder) for text in own), *of_tasks]
        common = [text for text in listed if text not in own]
        found = input_trees.find(common, file.folder, exclusions, follow_links=options.follow_links)
    shared = [text for text in texts if text not in given]
    found |= input_trees.find(shared, exclusions=exclusions, follow_links=options.follow_links)
    return replace(await hashed(found), left_out=tuple(exclusions.left_out), of_tasks=tuple(of_tasks))


async def hashed(found: Mapping[str, LocalFile]) -> InputFiles:
    """Return these files as inputs. Raises LooplineError (usage) if one is unusable."""
    if not found:
        return InputFiles()
    with bytes_bar("hashing", sum(one.size_bytes for one in found.values())) as on_progress:
        try:
            return InputFiles(await files.hash_all(found, on_progress))
        except OSError as error:
            raise usage(f"cannot read {error.filename}: {error.strerror}") from None


async def submitted(client: AsyncClient, job: JobSpec, swept: SweepParameters, found: InputFiles) -> Submission:
    """Upload what the job needs and submit it. Ctrl-C before that says that there is no job yet."""
    try:
        await swept.upload(client)
        await found.upload(client)
    except asyncio.CancelledError:
        message = (
            "nothing is submitted; the same command continues where this one stopped, without sending files again"
        )
        stderr().print(f"\n{message}", soft_wrap=True)
        raise
    return await client.submit(job)


def line_end_warnings(job: JobSpec, found: InputFiles) -> list[str]:
    """Return a warning for each script of the command whose first line ends as on Windows: it cannot be run."""
    named = {word: found.files.get(Path(word).as_posix()) for word in (job.command or ())[:_MOST_WORDS]}
    return [
        f"{word} has line ends of Windows (CRLF), so a system does not find its interpreter: run dos2unix on it"
        for word, file in named.items()
        if file is not None and file.has_content and _ends_as_on_windows(file.path)
    ]


def _ends_as_on_windows(script: Path) -> bool:
    with suppress(OSError), script.open("rb") as file:
        first = file.readline(256)
        return first.startswith(b"#!") and first.endswith(b"\r\n")
    return False


def _exclusions(options: FileOptions) -> Exclusions:
    """Return what folders do not bring along. Raises LooplineError (usage) if ``exclude_from`` is unreadable."""
    return Exclusions([*(read_patterns(options.exclude_from) if options.exclude_from else ()), *options.exclude])


def _is_of_tasks(text: str, base: Path) -> bool:
    return bool(names_in([text])) and not (base / text).exists()


def _bytes_of(inputs: Iterable[LocalFile]) -> int:
    return sum(file.size_bytes for file in inputs)


def _listed(file: JobFile) -> Sequence[str]:
    """Take the list of inputs out of a job file, and return its paths."""
    inputs: Any = file.document.get("inputs")
    if not (isinstance(inputs, list) and all(isinstance(path, str) for path in inputs)):
        return ()
    del file.document["inputs"]
    return inputs


# Inputs that differ from task to task


def rows_of(job: JobSpec, swept: SweepParameters, most: int) -> list[Row]:
    """Return the parameters of the first tasks of a job."""
    if isinstance(job.parameters, RowFile):
        return list(swept.rows.first(most)) if swept.rows is not None else []
    return [task_at(job, number).parameters for number in islice(range(1, job.task_count + 1), most)]


async def of_tasks(
    job: JobSpec, texts: Sequence[tuple[str, Path]], swept: SweepParameters, options: FileOptions
) -> tuple[list[Any], InputFiles]:
    """Return the job's tasks with inputs of their own, as JSON, and these files.

    ``texts``: the inputs, each with the folder where its paths start. Raises LooplineError (usage) if a text names no
    parameter, or if a file is not there.
    """
    rows = rows_of(job, swept, MAX_LISTED_TASKS + 1)
    if len(rows) > MAX_LISTED_TASKS:
        raise usage(
            f"more than {MAX_LISTED_TASKS:,} tasks cannot have inputs of their own", "pack their files into archives"
        )
    if problem := unknown_name([text for text, _ in texts], set().union(*rows), "inputs"):
        raise usage(problem)
    exclusions = _exclusions(options)
    trees = input_trees.FilledTrees(exclusions, follow_links=options.follow_links)
    found = [_of_task(number, row, texts, trees) for number, row in enumerate(rows, 1)]
    contents = (await hashed({str(file.path): file for files in found for file in files.values()})).files
    tasks: list[Any] = []
    for place, (row, its_files) in enumerate(zip(rows, found, strict=True)):
        task = job.tasks[place].model_dump(exclude_defaults=True) if job.tasks else {"parameters": dict(row)}
        own = {name: contents[str(file.path)].as_input() for name, file in its_files.items()}
        tasks.append({**task, "inputs": {**task.get("inputs", {}), **own}})
    return tasks, InputFiles(contents, tuple(dict.fromkeys(exclusions.left_out)))


def _of_task(
    number: int, row: Row, texts: Iterable[tuple[str, Path]], trees: input_trees.FilledTrees
) -> dict[str, LocalFile]:
    """Return the files of one task, keyed by their path in the task's folder."""
    files: dict[str, LocalFile] = {}
    for text, base in texts:
        files |= trees.find(text, base, row, f"task {number}")
    if len(files) > MAX_OWN_INPUTS:
        raise usage(f"task {number} has more than {MAX_OWN_INPUTS} inputs of its own", "pack them into an archive")
    return files
