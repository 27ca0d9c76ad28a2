"""From a Run of a function to the call that is made for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from shared.model import Function
from shared.protocol.messages import Run
from worker import scratch
from worker.launch.trees import Call
from worker.warm import value as value_file

_FILE = "sha256:"


def folder_of(run: Run, scratch_folder: Path) -> Path:
    """Calls of one session have their folders in one *room*: an interpreter in a sandbox can write nowhere else."""
    if run.function is None:
        return scratch_folder / str(run.attempt)
    room = hashlib.sha256(f"{run.function.session} {run.slots} {run.environment}".encode()).hexdigest()[:16]
    return scratch_folder / f"session-{room}" / str(run.attempt)


def call_of(run: Run, folder: Path) -> Call | None:
    """None: it is a command."""
    if run.function is None:
        return None
    arguments, file = str(run.parameters.get("call", "")), ""
    if arguments.startswith(_FILE):
        arguments, file = "", arguments.removeprefix(_FILE)
    value = scratch.temporary(folder) / value_file.NAME
    function = run.function
    return Call(function.session, _hash(function), arguments, value, file, _count(function, run.attempt.task))


def _count(function: Function, task: int) -> int | None:
    if function.chunk is None or function.calls is None:
        return None
    return min(function.chunk, function.calls - (task - 1) * function.chunk)


def _hash(function: Function) -> str:
    return function.file.removeprefix(_FILE)
