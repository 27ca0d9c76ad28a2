"""The private folder of an attempt, and the environment of its task there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.worker_link import Run

VARIABLE = "LOOPLINE_SCRATCH"

_INHERITED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
_INHERITED_ON_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR", "NUMBER_OF_PROCESSORS")


def make(folder: Path) -> None:
    """Make an empty folder for an attempt. Raises OSError if the disk is full."""
    remove(folder)
    temporary(folder).mkdir(parents=True)


def remove(folder: Path) -> None:
    """Remove a folder with all its content; the next agent's sweep removes what is left."""
    try:
        _remove(folder)
    except RecursionError:  # a task may nest its folders deeper than Python goes
        if os.name == "posix":
            subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)


def _remove(folder: Path) -> None:
    if folder.is_symlink():  # planted by a task that shares a room with it: what it leads to is not ours
        folder.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():  # a task may lock its own folders
        folder.chmod(0o700)
        for place, names, _ in os.walk(folder):
            for inner in (Path(place, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with suppress(OSError):  # there is still something in it
        folder.rmdir()


class TaskEnvironment:
    """Environment of a task. The job's variables override inherited ones; the names below override the job's.

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
            "LOOPLINE_PARAMETERS": json.dumps(run.parameters) if run.parameters and not run.function else "{}",
            VARIABLE: home,
        }


def temporary(folder: Path) -> Path:
    """Return the folder for temporary files, which is never searched for outputs."""
    return folder / TEMPORARY
