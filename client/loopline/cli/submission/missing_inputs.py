"""Files of the working folder that a command names but its tasks will not find: tasks start in an empty folder."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from loopline_shared.spec import JobSpec


def warnings(job: JobSpec) -> list[str]:
    """Return a warning for each file of this folder that the job's command names and that no input brings along."""
    if not job.command:
        return []
    first, *others = job.command
    words = ([] if _is_on_path(first) else [first]) + others
    # An output of an earlier run may have been downloaded to this folder.
    known = {*job.inputs, *job.outputs, *(name for task in job.tasks or () for name in task.inputs)}
    missing = [word for word in dict.fromkeys(words) if _is_file_below(word) and _place(word) not in known]
    return [_warning(word, _steps(word, word is first)) for word in missing]


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


def _steps(word: str, is_program: bool) -> str:
    """Return what to type so that tasks find the file."""
    place = _place(word)
    option = f"{place}={place}" if "/" in place else place  # by itself, an input goes to the top of the folder
    step = f"add --input {shlex.quote(option)}"
    if is_program and not _has_folder(word):  # such a program is searched on PATH only
        return f"{step} and write {shlex.quote(f'./{word}')}"
    return step


def _warning(word: str, steps: str) -> str:
    return f"{word} is a file in this folder but not an input: tasks start in an empty folder; {steps}"
