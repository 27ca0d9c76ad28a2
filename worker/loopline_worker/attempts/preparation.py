"""The preparation of an attempt: makes a Job for the launcher from a Run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from loopline_shared.model import Function
from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.worker_link import NAMES_OF_SECRETS, Run
from loopline_worker.attempts import progress_file, result_file, scratch
from loopline_worker.attempts.limits import Quota
from loopline_worker.launch.interface import Call, Job

_INHERITED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
_INHERITED_ON_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR", "NUMBER_OF_PROCESSORS")
_OPENMP = "OMP_NUM_THREADS"
_THREADS = (
    _OPENMP, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS",
)  # fmt: skip
"""Variables that set the number of threads in numerical libraries. Without them they start one for each core."""
_FILE = "sha256:"
_ENTER = """cd -- "$0" 2>/dev/null || {
echo "tasks on $LOOPLINE_WORKER cannot enter $0: it is not there, or closed to their user" >&2; exit 126; }
exec "$@\""""
_LIMITS_KEPT = 64
_ROOMS_KEPT = 256


class Preparation:
    """Makes the Job of each Run. ``worker``: this worker's name, for the environment."""

    def __init__(self, worker: str, scratch_folder: Path, quota: Quota) -> None:
        self._scratch = scratch_folder
        self._environment = TaskEnvironment(worker)
        self._limits = lru_cache(_LIMITS_KEPT)(quota.limits)

    def job_of(self, run: Run) -> Job:
        """Return the Job. The launcher makes the folder, unless files have to be in it before the task starts."""
        room = _room_of(run, self._scratch)
        folder = f"{room or self._scratch}{os.sep}{run.attempt}"
        own = self._environment.own(run, folder)
        return Job(
            _within(run.folder, run.command) if run.folder else run.command,
            folder,
            {**self._environment.inherited, **_threads(run), **_filled(run), **own},
            self._limits(run.memory_bytes, run.slots),
            network=run.network,
            call=_call_of(run, own),
            room=room,
            shared_folder=run.folder,
            makes_folder=not run.has_files,
        )


class TaskEnvironment:
    """Environment of a task. The job's variables override inherited ones and numbers of threads (``_THREADS``).

    The names below override the job's:

    ==================== ==========================================================================
    PATH, LANG, LC_*, TZ as the agent has them (and what Windows cannot do without)
    HOME, TMPDIR         the scratch folder, and ``.tmp`` in it
    LOOPLINE_JOB         the job's number
    LOOPLINE_JOB_NAME    the job's name, perhaps empty
    LOOPLINE_TASK        the task's number in its job, from 1
    LOOPLINE_ATTEMPT     the attempt: job.task.number
    LOOPLINE_WORKER      the worker's name
    LOOPLINE_SLOTS       how many slots the task occupies: how many threads to use
    LOOPLINE_PARAMETERS  the task's parameters, a JSON object
    LOOPLINE_SCRATCH     the scratch folder: where the task starts, removed when it ends
    LOOPLINE_RESULT      file for its metrics, a JSON object of names and numbers
    LOOPLINE_PROGRESS    file for the part of it that is done, a number from 0 to 1
    ==================== ==========================================================================
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._inherited: dict[str, str] = {}

    @property
    def inherited(self) -> dict[str, str]:
        """Return the variables that all tasks inherit from the agent."""
        if not self._inherited:
            names = _INHERITED + (_INHERITED_ON_WINDOWS if sys.platform == "win32" else ())
            self._inherited = {name: os.environ[name] for name in names if name in os.environ}
        return self._inherited

    def own(self, run: Run, home: str) -> dict[str, str]:
        """Return the variables of this task alone, for the scratch folder ``home``."""
        attempt, for_files = run.attempt, f"{home}{os.sep}{TEMPORARY}"
        places = {"HOME": home, "TMPDIR": for_files, "TEMP": for_files, "TMP": for_files}
        if run.environment:
            places = {name: run.environment.get(name, place) for name, place in places.items()}
        return {
            **places,
            "LOOPLINE_JOB": str(attempt.job),
            "LOOPLINE_JOB_NAME": run.job_name,
            "LOOPLINE_TASK": str(attempt.task),
            "LOOPLINE_ATTEMPT": str(attempt),
            "LOOPLINE_WORKER": self._worker,
            "LOOPLINE_SLOTS": str(run.slots),
            "LOOPLINE_PARAMETERS": _as_json(run.parameters) if run.parameters and not run.function else "{}",
            scratch.VARIABLE: home,
            result_file.VARIABLE: f"{for_files}{os.sep}{result_file.NAME}",
            progress_file.VARIABLE: f"{for_files}{os.sep}{progress_file.NAME}",
        }


def _threads(run: Run) -> dict[str, str]:
    """Return variables that limit the threads of libraries: one for each slot, or the job's OpenMP setting."""
    return dict.fromkeys(_THREADS, run.environment.get(_OPENMP) or str(run.slots))


def _within(folder: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs this one in a shared folder, which the task's user must be able to enter."""
    return ("/bin/sh", "-c", _ENTER, folder, *command)


def _room_of(run: Run, scratch_folder: Path) -> str:
    """Return the folder around the folders of a session's calls; empty for a command.

    Calls of one session share a folder because an interpreter in a sandbox can write nowhere else.
    """
    function = run.function
    return (
        _room(str(scratch_folder), f"{function.session} {run.slots} {run.environment} {run.software}")
        if function
        else ""
    )


@lru_cache(_ROOMS_KEPT)
def _room(scratch_folder: str, session: str) -> str:
    return f"{scratch_folder}{os.sep}session-{hashlib.sha256(session.encode()).hexdigest()[:16]}"


def _call_of(run: Run, environment: dict[str, str]) -> Call | None:
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


def _filled(run: Run) -> dict[str, str]:
    """Return the variables of the job with the task's parameters in them; secrets stay as they are."""
    if not any("{" in value for value in run.environment.values()):
        return run.environment
    from loopline_shared.protocol.templates import fill_text  # which few jobs need

    secret = run.environment.get(NAMES_OF_SECRETS, "").split(",")
    return {
        name: value if name in secret else fill_text(value, run.parameters) for name, value in run.environment.items()
    }


def _as_json(parameters: Mapping[str, str | bool | int | float]) -> str:
    """Return the parameters as JSON; a text that is a number becomes one."""
    if any(isinstance(value, str) for value in parameters.values()):
        from loopline_shared.protocol.templates import number_of

        return json.dumps({name: number_of(value) for name, value in parameters.items()})
    return json.dumps(parameters)
