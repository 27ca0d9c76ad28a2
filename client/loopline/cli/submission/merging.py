"""Parameters of a job file, merged by name with those of the command line."""

from __future__ import annotations

from typing import Any

from loopline.cli.submission.job_file import JobFile
from loopline_shared.job.parameters import parameters_kind
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import placeholders


def merged(below: Any, above: Any) -> Any:
    """Return the file's parameters (``below``) with those of the command line (``above``) put in or added.

    Rows cannot be merged by name: where either side has rows, the command line's parameters replace the file's.
    """
    if _is_grid(below) and _is_grid(above):
        return below | above
    return above


def names(parameters: Any) -> set[str]:
    """Return the names of parameters given as JSON; none for a file of rows, which only the master has."""
    if not isinstance(parameters, dict) or parameters_kind(parameters) == "file":
        return set()
    if parameters_kind(parameters) == "table":
        return set().union(*(row for row in parameters["rows"] if isinstance(row, dict)))
    return set(parameters)


def check_all_given(job: JobSpec, file: JobFile, given: set[str]) -> None:
    """Raises LooplineError (usage) if the command needs a parameter of the file that the job was not given."""
    lost = names(file.document.get("parameters")) - given
    for name in placeholders(job):
        if name in lost:
            message = f"the command says {{{name}}}, but the command line replaces all parameters of the file"
            hint = f"give {name} on the command line too: as --param {name}=VALUES, or as a column of the rows"
            raise file.mistake(("parameters", name), message, hint)


def _is_grid(parameters: Any) -> bool:
    return isinstance(parameters, dict) and parameters_kind(parameters) == "grid"
