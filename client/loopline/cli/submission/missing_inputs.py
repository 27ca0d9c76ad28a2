"""Files of the working folder that a command names but its tasks will not find: tasks start in an empty folder.

On a terminal each is offered as an input, ``--input auto`` takes them all, and otherwise there is a warning with the
option to type.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.cli.common import answers_yes, is_interactive
from loopline_shared.job_files import all_outputs
from loopline_shared.protocol.templates import Template, names_in
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

AUTO = "auto"
"""The word of ``--input`` that takes every missing file along."""


@dataclass(frozen=True, slots=True)
class MissingInput:
    """A file that a command names as ``word`` and that no input brings along."""

    word: str
    input: str  # what --input has to say
    is_found_on_path_only: bool = False  # a program: its name alone is not looked for in the scratch folder
    importer: str = ""  # the script that imports it, where the command does not name it
    is_of_task: bool = False  # the word names a parameter, whose values are files

    @property
    def warning(self) -> str:
        """The warning that says what is missing, and what to type."""
        step = f"add --input {shlex.quote(self.input)}"
        if self.is_found_on_path_only:
            step = f"{step} and write {shlex.quote(f'./{self.word}')}"
        if self.importer:
            return f"{self.importer} imports {self.word}, which is in this folder but not an input; {step}"
        if self.is_of_task:
            return f"{self.word} names a file of this folder for each task, and none is an input; {step}"
        return f"{self.word} is a file in this folder but not an input: tasks start in an empty folder; {step}"


def find(job: JobSpec, parameters: Mapping[str, Scalar], of_tasks: Collection[str] = ()) -> list[MissingInput]:
    """Return the files of this folder that the job's command names and that its tasks will not find.

    ``parameters``: those of its first task; ``of_tasks``: the inputs that name parameters.
    """
    if not job.command or job.requires.folder:
        return []
    first, *others = job.command
    words = ([] if _is_on_path(first) else [first]) + others
    # An output of an earlier run may have been downloaded to this folder.
    known = {*job.inputs, *all_outputs(job.outputs), *(name for task in job.tasks or () for name in task.inputs)}
    missing = [word for word in dict.fromkeys(words) if _is_file_below(word) and _place(word) not in known]
    own = [word for word in dict.fromkeys(words) if _is_file_of_task(word, parameters) and word not in of_tasks]
    found = [MissingInput(word, word, is_of_task=True) for word in own]
    found += [MissingInput(word, _option(word), word is first and not _has_folder(word)) for word in missing]
    scripts = [word for word in words if word.endswith(".py") and (word in missing or _place(word) in known)]
    return found + [one for script in scripts for one in _imported(script, known) if one.word not in missing]


def _imported(script: str, known: set[str]) -> list[MissingInput]:
    """Return the modules beside a script that it imports, and that these import, which are not among the inputs."""
    from loopline.functions.user_modules import imports  # only scripts in Python need it

    found, waiting = dict[str, MissingInput](), [script]
    while waiting:
        file = Path(waiting.pop())
        names = {name.partition(".")[0] for name in imports("", False, _source(file))} - {""}
        for name in sorted(names):
            module, package = Path(script).with_name(f"{name}.py"), Path(script).with_name(name) / "__init__.py"
            place = next((path for path in (module, package) if _is_file_below(str(path))), None)
            if place is None or str(place) in found or str(place) == script:
                continue
            waiting += map(str, place.parent.rglob("*.py")) if place == package else [str(place)]
            folder = f"{place.parent.as_posix()}/" if place == package else place.as_posix()
            found[str(place)] = MissingInput(folder, _option(folder), importer=file.as_posix())
    return [one for place, one in found.items() if _place(place) not in known]


def _source(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def chosen(missing: Sequence[MissingInput], *, takes_all: bool, may_ask: bool) -> list[str]:
    """Return what to add as inputs: all, or those to which the user says yes if there is a terminal to ask on."""
    usable = [one for one in missing if not one.is_found_on_path_only]
    if takes_all:
        return [one.input for one in usable]
    if not (may_ask and is_interactive()):
        return []
    return [one.input for one in usable if answers_yes(f"add {one.word} as an input?")]


def _is_file_of_task(word: str, parameters: Mapping[str, Scalar]) -> bool:
    return bool(names_in([word])) and _is_file_below(Template([word]).fill(parameters)[0])


def _is_on_path(program: str) -> bool:
    """True if a task finds the program on its PATH, which is taken to be like ours."""
    return not _has_folder(program) and shutil.which(program) is not None


def _is_file_below(word: str) -> bool:
    """True if the word is the path of a file in this folder, or in a folder below it."""
    path = Path(word)
    try:
        return path.is_file() and not path.is_absolute() and ".." not in path.parts
    except OSError:  # too long for a name, such as a script for `sh -c`
        return False


def _has_folder(word: str) -> bool:
    return "/" in word or os.sep in word


def _place(word: str) -> str:
    """Return the path below its working folder where a task looks for the file."""
    return Path(word).as_posix()


def _option(word: str) -> str:
    """Return the input that puts the file where the command looks for it."""
    place = _place(word)
    return f"{place}={place}" if "/" in place else place  # by itself, an input goes to the top of the folder
