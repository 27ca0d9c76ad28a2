"""Files that go along with a job: found, hashed, and brought to the master where it does not have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Group, Parameter

from loopline.cli.errors import usage
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import Document
from loopline.cli.submission.progress import bytes_bar
from loopline.client import AsyncClient
from loopline.transfer import files, input_trees
from loopline.transfer.files import LocalFile


@Parameter(name="*", group=Group("Its files", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """What tasks find, and what they leave.

    Parameters
    ----------
    input
        A file or a folder that tasks find in their scratch folder: data/, model.bin, or model.bin=name/there to
        give it another name; may be given several times.
    output
        Files to bring back when a task has succeeded: result.csv, '*.csv', 'out/**'; may be given several times.
    """

    input: Annotated[tuple[str, ...], Parameter(metavar="PATH[=NAME]")] = ()
    output: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()

    def document(self) -> Document:
        return {"outputs": list(self.output)}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Of a job, by where tasks find them."""

    files: Mapping[str, LocalFile] = field(default_factory=dict)

    def named_in(self, document: Document) -> Document:
        """A job that names them beside those that it names already."""
        if not self.files:
            return document
        ours = {name: file.as_input() for name, file in self.files.items()}
        return document | {"inputs": document.get("inputs", {}) | ours}

    async def upload(self, client: AsyncClient) -> None:
        contents = {file.sha256: file.size_bytes for file in self.files.values()}
        with bytes_bar("uploading", sum(contents.values())) as tell:
            await files.upload_all(client, self.files.values(), tell)


async def read(options: FileOptions, file: JobFile | None) -> Inputs:
    """What the command line and a job file's list name; LooplineError (usage) for what cannot be one."""
    found = input_trees.find(_listed(file), file.folder) if file else {}
    found |= input_trees.find(options.input)
    if not found:
        return Inputs()
    with bytes_bar("hashing", sum(one.size_bytes for one in found.values())) as tell:
        try:
            return Inputs(await files.hash_all(found, tell))
        except OSError as error:
            raise usage(f"cannot read {error.filename}: {error.strerror}") from None


def _listed(file: JobFile) -> Sequence[str]:
    """Paths that a job file lists as its inputs, taken out of it: they are not yet what a job says."""
    inputs: Any = file.document.get("inputs")
    if not (isinstance(inputs, list) and all(isinstance(path, str) for path in inputs)):
        return ()
    del file.document["inputs"]
    return inputs
