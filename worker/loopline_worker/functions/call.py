"""The call that a Run of a function asks for."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from loopline_shared.model import Function
from loopline_shared.protocol.worker_link import Run
from loopline_worker.launch.interface import Call

_FILE = "sha256:"
_KEPT = 256


def room_of(run: Run, scratch_folder: Path) -> str:
    """Return the folder around the folders of a session's calls; empty for a command.

    Calls of one session share a folder because an interpreter in a sandbox can write nowhere else.
    """
    function = run.function
    return _room(str(scratch_folder), f"{function.session} {run.slots} {run.environment}") if function else ""


@lru_cache(_KEPT)
def _room(scratch_folder: str, session: str) -> str:
    return f"{scratch_folder}{os.sep}session-{hashlib.sha256(session.encode()).hexdigest()[:16]}"


def call_of(run: Run, environment: dict[str, str]) -> Call | None:
    """Return the call with the task's own variables; None for a command."""
    function = run.function
    if function is None:
        return None
    arguments, file = str(run.parameters.get("call", "")), ""
    if arguments.startswith(_FILE):
        arguments, file = "", arguments.removeprefix(_FILE)
    count = _count(function, run.attempt.task)
    program = function.file.removeprefix(_FILE)
    return Call(function.session, program, arguments, environment, arguments_file=file, count=count)


def _count(function: Function, task: int) -> int | None:
    """Return the number of calls in a task's chunk; the last chunk may be shorter."""
    if function.chunk is None or function.calls is None:
        return None
    return min(function.chunk, function.calls - (task - 1) * function.chunk)
