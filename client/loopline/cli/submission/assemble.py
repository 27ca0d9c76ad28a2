"""A job put together from a job file and from the command line, whose options override the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from loopline.cli.errors import usage
from loopline.cli.submission import merging, mistakes
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import JobDocument
from loopline_shared.spec import JobSpec

_MERGED = ("requires", "environment", "secrets", "inputs")
"""Fields that are merged entry by entry, as parameters are; all others but labels are replaced."""
_LONGEST_FOLDER = 1000


class Part(Protocol):
    """A group of options."""

    def document(self) -> JobDocument:
        """Return its part of the job as JSON."""


def document(command: Sequence[str], parts: Sequence[Part], file: JobFile | None) -> JobDocument:
    """Return the job as JSON, apart from its sweep. Raises LooplineError (usage) if there is nothing to run."""
    made: JobDocument = {"command": list(command)}
    try:
        for part in parts:
            made |= part.document()
    except ValueError as error:
        raise usage(str(error)) from None
    made = _given({name: _given(value) if isinstance(value, dict) else value for name, value in made.items()})
    if file is not None:
        made = _over(file.document, made)
    if not (made.get("command") or made.get("tasks") or made.get("function")):
        where = f"; or as `command` in {file.name}" if file else ""
        raise usage("there is no command to run", f"it goes after `--`: loopline submit -- hostname{where}")
    if not made.get("name"):
        made["name"] = _name(made, file)
    return _given({"folder": _here()}) | made


def specification(made: JobDocument, parameters: Any, file: JobFile | None) -> JobSpec:
    """Return the job. Raises LooplineError (usage) if it is invalid."""
    if parameters:
        made = made | {"parameters": merging.merged(made.get("parameters"), parameters)}
    try:
        return JobSpec.model_validate(made)
    except ValidationError as error:
        raise _mistakes(error, made, file) from None


def _over(below: JobDocument, above: JobDocument) -> JobDocument:
    made = below | above
    for name in _MERGED:
        if isinstance(below.get(name), dict) and isinstance(above.get(name), dict):
            made[name] = below[name] | above[name]
    if labels := _labels(below) + [label for label in _labels(above) if label not in _labels(below)]:
        made["requires"] = made["requires"] | {"labels": labels}
    return made


def _labels(document: JobDocument) -> list[Any]:
    """Return the labels that a worker must have; empty if they are no list, which is reported later."""
    requires = document.get("requires")
    labels = requires.get("labels") if isinstance(requires, dict) else None
    return labels if isinstance(labels, list) else []


def _here() -> str:
    """Return the working folder; empty if a master would refuse its name."""
    folder = Path.cwd().as_posix()
    return folder if len(folder) <= _LONGEST_FOLDER and folder.isprintable() else ""


def _name(made: JobDocument, file: JobFile | None) -> str:
    command = made.get("command")
    first = command[0] if isinstance(command, list) and command else file.name if file else ""
    return str(first).replace("\\", "/").rsplit("/", 1)[-1][:200]


def _given(document: JobDocument) -> JobDocument:
    return {name: value for name, value in document.items() if value not in (None, "", [], {})}


def _mistakes(error: ValidationError, made: JobDocument, file: JobFile | None) -> Exception:
    """Return the error with its positions in the file, if all mistakes are in the file."""
    found = error.errors(include_url=False)
    if file is not None and all(_is_of(file, one["loc"], made) for one in found):
        return file.mistakes(error)
    told = [mistakes.said(mistakes.place(made, one["loc"]), mistakes.message(one)) for one in found]
    return usage("\n  ".join(dict.fromkeys(told)))


def _is_of(file: JobFile, loc: tuple[int | str, ...], made: JobDocument) -> bool:
    """True if the mistake is in the file, and the command line has left that value as it was."""
    if not loc:
        return True
    below, above = file.document.get(str(loc[0])), made.get(str(loc[0]))
    path = mistakes.place(made, loc)
    if len(path) > 1 and isinstance(below, dict) and isinstance(above, dict):
        return path[1] in below and below[path[1]] == above[path[1]]
    return bool(below == above)
