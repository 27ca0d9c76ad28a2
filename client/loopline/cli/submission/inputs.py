"""Inputs of a job: found, hashed, and uploaded unless the master has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from loopline.cli.errors import usage
from loopline.cli.submission import missing_inputs
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import JobDocument
from loopline.cli.submission.progress import bytes_bar
from loopline.cli.submission.sweep import SweepParameters
from loopline.client import AsyncClient
from loopline.transfer import files, input_trees
from loopline.transfer.excluded import Exclusions, read_patterns
from loopline.transfer.files import LocalFile
from loopline_shared.model import MAX_OWN_INPUTS
from loopline_shared.protocol.templates import names_in, unknown_name
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec, RowFile
from loopline_shared.sweep import task_at

MAX_LISTED_TASKS = 100_000
"""Maximum number of tasks that may have files of their own: each is listed in the job, with its files."""
Row = Mapping[str, Scalar]


@Parameter(name="*", group=Group("Its files", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options about inputs and outputs.

    Parameters
    ----------
    input
        A file or a folder that tasks find in their scratch folder: data/, model.bin, or model.bin=name/there to
        give it another name; may be given several times. '{line}' is for each task the file that its parameter
        names. `auto` takes every file of this folder that the command names (a file of that name: ./auto).
    exclude
        Names or patterns that folders do not bring along: '*.log', build/, data/old; may be given several times.
        Left out anyway: .git, __pycache__, virtual environments, locks of editors, and what .looplineignore names.
    exclude_from
        A file of such patterns, one a line, such as .gitignore.
    output
        Files to bring back from each task: result.csv, '*.{csv,log}', or a folder; may be given several times. A
        task fails if one is missing, or a pattern matches no file.
    output_optional
        Files to bring back if there are any.
    """

    input: Annotated[tuple[str, ...], Parameter(metavar="PATH[=NAME]")] = ()
    exclude: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()
    exclude_from: Annotated[Path | None, Parameter(metavar="FILE")] = None
    output: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()
    output_optional: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()

    @property
    def takes_all(self) -> bool:
        """True if every file that the command names is to be an input."""
        return missing_inputs.AUTO in self.input

    @property
    def named(self) -> tuple[str, ...]:
        """The inputs that are named."""
        return tuple(path for path in self.input if path != missing_inputs.AUTO and path not in self.of_tasks)

    @property
    def of_tasks(self) -> tuple[str, ...]:
        """The inputs that differ from task to task: they name parameters."""
        return tuple(path for path in self.input if names_in([path]) and not Path(path).exists())

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {"outputs": [*self.output, *({"path": path, "optional": True} for path in self.output_optional)]}


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Inputs of a job, by the paths at which tasks find them."""

    files: Mapping[str, LocalFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # paths that were excluded

    def named_in(self, document: JobDocument) -> JobDocument:
        """Return the job with these inputs beside those that it names already."""
        if not self.files:
            return document
        ours = {name: file.as_input() for name, file in self.files.items()}
        return document | {"inputs": document.get("inputs", {}) | ours}

    def beside(self, others: InputFiles) -> InputFiles:
        """Return these and those others."""
        return InputFiles({**others.files, **self.files}, (*others.left_out, *self.left_out))

    async def upload(self, client: AsyncClient) -> None:
        """Upload the inputs that the master does not have."""
        if not self.files:
            return
        contents = {file.sha256: file.size_bytes for file in self.files.values()}
        with bytes_bar("uploading", sum(contents.values())) as on_progress:
            await files.upload_all(client, self.files.values(), on_progress)


async def read(options: FileOptions, file: JobFile | None) -> InputFiles:
    """Return the inputs of the command line and of the list in a job file. Raises LooplineError (usage) if one is
    unusable.
    """
    patterns = read_patterns(options.exclude_from) if options.exclude_from else []
    exclusions = Exclusions([*patterns, *options.exclude])
    found = input_trees.find(_listed(file), file.folder, exclusions) if file else {}
    found |= input_trees.find(options.named, exclusions=exclusions)
    return replace(await hashed(found), left_out=tuple(exclusions.left_out))


async def hashed(found: Mapping[str, LocalFile]) -> InputFiles:
    """Return these files as inputs. Raises LooplineError (usage) if one is unusable."""
    if not found:
        return InputFiles()
    with bytes_bar("hashing", sum(one.size_bytes for one in found.values())) as on_progress:
        try:
            return InputFiles(await files.hash_all(found, on_progress))
        except OSError as error:
            raise usage(f"cannot read {error.filename}: {error.strerror}") from None


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


async def of_tasks(job: JobSpec, texts: Sequence[str], swept: SweepParameters) -> tuple[list[Any], InputFiles]:
    """Return the job's tasks with inputs of their own, as JSON, and these files.

    Raises LooplineError (usage) if a text names no parameter, or if a file is not there.
    """
    rows = rows_of(job, swept, MAX_LISTED_TASKS + 1)
    if len(rows) > MAX_LISTED_TASKS:
        raise usage(
            f"more than {MAX_LISTED_TASKS:,} tasks cannot have inputs of their own", "pack their files into archives"
        )
    if problem := unknown_name(texts, set().union(*rows), "inputs"):
        raise usage(problem)
    found = [_of_task(number, row, texts) for number, row in enumerate(rows, 1)]
    contents = (await hashed({str(file.path): file for files in found for file in files.values()})).files
    tasks: list[Any] = []
    for place, (row, its_files) in enumerate(zip(rows, found, strict=True)):
        task = job.tasks[place].model_dump(exclude_defaults=True) if job.tasks else {"parameters": dict(row)}
        own = {name: contents[str(file.path)].as_input() for name, file in its_files.items()}
        tasks.append({**task, "inputs": {**task.get("inputs", {}), **own}})
    return tasks, InputFiles(contents)


def _of_task(number: int, row: Row, texts: Iterable[str]) -> dict[str, LocalFile]:
    """Return the files of one task, keyed by their path in the task's folder."""
    files: dict[str, LocalFile] = {}
    for text in texts:
        files |= input_trees.find_filled(text, row, f"task {number}")
    if len(files) > MAX_OWN_INPUTS:
        raise usage(f"task {number} has more than {MAX_OWN_INPUTS} inputs of its own", "pack them into an archive")
    return files
