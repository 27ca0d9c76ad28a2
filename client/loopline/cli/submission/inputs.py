"""Inputs of a job: found, hashed, and uploaded unless the master has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Group, Parameter

from loopline.cli.errors import usage
from loopline.cli.submission import missing_inputs
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import JobDocument
from loopline.cli.submission.progress import bytes_bar
from loopline.client import AsyncClient
from loopline.transfer import files, input_trees
from loopline.transfer.files import LocalFile


@Parameter(name="*", group=Group("Its files", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options about inputs and outputs.

    Parameters
    ----------
    input
        A file or a folder that tasks find in their scratch folder: data/, model.bin, or model.bin=name/there to
        give it another name; may be given several times. `auto` takes every file of this folder that the command
        names (a file of that name: ./auto).
    output
        Files to bring back from each task: result.csv, '*.{csv,log}', or a folder; may be given several times. A
        task fails if one is missing, or a pattern matches no file.
    output_optional
        Files to bring back if there are any.
    """

    input: Annotated[tuple[str, ...], Parameter(metavar="PATH[=NAME]")] = ()
    output: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()
    output_optional: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()

    @property
    def takes_all(self) -> bool:
        """True if every file that the command names is to be an input."""
        return missing_inputs.AUTO in self.input

    @property
    def named(self) -> tuple[str, ...]:
        """The inputs that are named."""
        return tuple(path for path in self.input if path != missing_inputs.AUTO)

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {"outputs": [*self.output, *({"path": path, "optional": True} for path in self.output_optional)]}


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Inputs of a job, by the paths at which tasks find them."""

    files: Mapping[str, LocalFile] = field(default_factory=dict)

    def named_in(self, document: JobDocument) -> JobDocument:
        """Return the job with these inputs beside those that it names already."""
        if not self.files:
            return document
        ours = {name: file.as_input() for name, file in self.files.items()}
        return document | {"inputs": document.get("inputs", {}) | ours}

    def beside(self, others: InputFiles) -> InputFiles:
        """Return these and those others."""
        return InputFiles({**others.files, **self.files})

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
    found = input_trees.find(_listed(file), file.folder) if file else {}
    found |= input_trees.find(options.named)
    return await hashed(found)


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
