"""Runs of a job's tasks, and the program that they run, both derived from the job's spec alone.

A program is known by its user, the name of its jobs, and their folder (docs/design/dynamic-load.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import sha256
from typing import Any

from loopline_shared.job.parameters import RowFile
from loopline_shared.job_files import output_patterns, staged
from loopline_shared.model import AttemptId, Count, Function, Seconds
from loopline_shared.protocol.worker_link import Run
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import Sweep

ProgramKey = tuple[str, str, str]
"""A program's owner, name and folder."""
LEAST_SHARE = 1 / 16
"""Lower bound of the share of its slots that an attempt is assumed to have had."""
_MAX_NAME = 200
_SHORT_HASH = 12
_INTERPRETER = re.compile(r"(python|pypy|node|ruby|perl|php|bash|sh|zsh|dash|rscript|julia|java|env)[0-9.]*", re.I)
_INLINE = ("-c", "-e")


def key_of(owner: str, spec: JobSpec) -> ProgramKey:
    """Return the program that a job runs.

    A name that only repeats the command's first word is ignored: two scripts of one interpreter are two programs, and
    so are two functions without a name.
    """
    if spec.function and not spec.name:
        return (owner, f"function {spec.function.file.partition(':')[2][:_SHORT_HASH]}", spec.folder)
    command = spec.command or (spec.tasks[0].command if spec.tasks else None) or [""]
    program = _program_of(command)
    name = program if spec.name.removesuffix(".exe") in ("", _base(command[0])) else spec.name
    return (owner, name, spec.folder or program)


def _program_of(command: Sequence[str]) -> str:
    """The command's program; for an interpreter, the script that it runs."""
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


class Runs:
    """The runs of one job; the fields that all of them share are computed once."""

    __slots__ = ("_before", "_behind", "_extras", "_sweep", "_tasks")

    def __init__(self, owner: str, spec: JobSpec, sweep: Sweep, inputs: str | None) -> None:
        needs, rows = spec.requires, spec.parameters
        memory_bytes, function = needs.memory_bytes or None, _function(owner, spec)
        self._sweep, self._tasks = sweep, spec.tasks
        self._before: tuple[Any, ...] = (
            spec.environment, spec.name, needs.slots, spec.timeout_s, memory_bytes, needs.network, inputs
        )  # fmt: skip
        self._behind = (
            output_patterns(spec.outputs, optional=False),
            function,
            rows.sha256 if isinstance(rows, RowFile) else None,
            needs.folder,
            needs.software,
            owner,
        )
        self._extras: dict[str, Any] = {}  # fields that few jobs have
        if optional := output_patterns(spec.outputs, optional=True):
            self._extras["optional_outputs"] = optional
        if spec.kill_after_s is not None:
            self._extras["kill_after_s"] = spec.kill_after_s

    def run(self, attempt: AttemptId) -> Run:
        """Return the run that starts an attempt; its fields are given in their order."""
        number = attempt.task
        parameters = self._sweep.parameters_at(number)
        own_inputs = staged(self._tasks[number - 1].inputs) if self._tasks else {}
        command = self._sweep.command_at(number, parameters)
        run = Run(attempt, command, parameters, *self._before, own_inputs, *self._behind)  # type: ignore[call-arg]
        if self._extras:
            for name, value in self._extras.items():
                setattr(run, name, value)
        return run


def _function(owner: str, spec: JobSpec) -> Function | None:
    """Return the function with its session hashed with the user: others cannot share the interpreter by its name."""
    if spec.function is None:
        return None
    return replace(spec.function, session=sha256(f"{owner}\0{spec.function.session}".encode()).hexdigest())


@dataclass(slots=True)  # not frozen: one is made for each result
class Observation:
    """A task's successful run, as observed."""

    at: Seconds  # since 1970
    worker: str
    work: float  # reference CPU-seconds: time x speed x available share of the processor
    _: KW_ONLY
    wall_s: Seconds
    cpu_s: Seconds
    system_s: Seconds  # of these
    peak_memory_bytes: Count
    share: float = 1.0  # share of its slots that it had; at full share the work is work / share
    done: float | None = None  # work, by the speed that its worker was believed to have; null: as ``work``
    size: float | None = None  # of the task, as its user gave it
