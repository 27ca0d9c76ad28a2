"""Inputs and outputs of a job, as users write them and as workers receive them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from loopline_shared.model import FileName, InputFile, InputFolder, InputLink, StagedInput
from loopline_shared.paths import Pattern, RelativePath
from loopline_shared.scalar import Spec


class Input(Spec):
    """An uploaded file with its name in the scratch folder."""

    file: FileName
    executable: bool = False


def _input_kind(value: object) -> str:
    if isinstance(value, str):
        return "name"
    has = value if isinstance(value, dict) else {"link": isinstance(value, InputLink)}
    if isinstance(value, InputFolder) or "folder" in has:
        return "folder"
    return "link" if has.get("link") else "file"


Inputs = dict[RelativePath, Annotated[Annotated[Input, Tag("file")] | Annotated[FileName, Tag("name")]
                                      | Annotated[InputLink, Tag("link")] | Annotated[InputFolder, Tag("folder")],
                                      Discriminator(_input_kind)]]  # fmt: skip
"""Inputs by their path in the scratch folder: ``"sha256:..."``, or an object: a file with more details, a link, or an
empty folder."""


def input_files(inputs: Inputs) -> dict[str, InputFile]:
    """Return the files among the inputs in the form that workers receive."""
    return {path: one for path, one in staged(inputs).items() if isinstance(one, InputFile)}


def staged(inputs: Inputs) -> dict[str, StagedInput]:
    """Return the inputs in the form that workers receive."""
    return {path: _staged(one) for path, one in inputs.items()}


def _staged(one: Input | InputLink | InputFolder | str) -> StagedInput:
    if isinstance(one, InputLink | InputFolder):
        return one
    one = one if isinstance(one, Input) else Input(file=one)
    return InputFile(one.file[len("sha256:") :], None, one.executable)


class OutputPattern(Spec):
    """A pattern of output files with details."""

    path: Pattern
    optional: bool = Field(default=False, description="a task succeeds even if no file matches")


def _output_kind(value: object) -> str:
    return "pattern" if isinstance(value, dict | OutputPattern) else "text"


Outputs = list[Annotated[Annotated[OutputPattern, Tag("pattern")] | Annotated[Pattern, Tag("text")],
                         Discriminator(_output_kind)]]  # fmt: skip
"""Patterns of files to bring back: ``"*.csv"``, or an object with more details."""


def output_patterns(outputs: Outputs, *, optional: bool) -> tuple[str, ...]:
    """Return the optional patterns, or the required ones."""
    patterns = ((one.path, one.optional) if isinstance(one, OutputPattern) else (one, False) for one in outputs)
    return tuple(path for path, is_optional in patterns if is_optional is optional)


def all_outputs(outputs: Outputs) -> tuple[str, ...]:
    """Return all patterns, optional or not."""
    return output_patterns(outputs, optional=False) + output_patterns(outputs, optional=True)
