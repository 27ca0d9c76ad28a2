"""The key of a program: its user, the name of its jobs, and their folder (docs/design/dynamic-load.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loopline_shared.spec import JobSpec

ProgramKey = tuple[str, str, str]
"""A program's owner, name and folder."""

_MAX_NAME = 200
_INTERPRETER = re.compile(r"(python|pypy|node|ruby|perl|php|bash|sh|zsh|dash|rscript|julia|java|env)[0-9.]*", re.I)
_INLINE = ("-c", "-e")


def key_of(owner: str, spec: JobSpec) -> ProgramKey:
    """Which program a job runs. A name that only repeats the command's first word says nothing: two scripts of one
    interpreter are two programs.
    """
    command = spec.command or (spec.tasks[0].command if spec.tasks else None) or [""]
    program = _program_of(command)
    name = program if spec.name.removesuffix(".exe") in ("", _base(command[0])) else spec.name
    return (owner, name, spec.folder or program)


def _program_of(command: Sequence[str]) -> str:
    """The command's program; of an interpreter, what it interprets."""
    program = _base(command[0])
    if _INTERPRETER.fullmatch(program):
        for argument in command[1:]:
            if argument in _INLINE:
                break
            if not argument.startswith("-"):
                return _base(argument)
    return program


def _base(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")[:_MAX_NAME]
