"""Command lines of the other programs of Loopline, whose code is never loaded into the client's process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from loopline_shared.errors import LooplineError

_NEEDS = {
    "master": "sqlalchemy",
    "worker": "psutil",
    "sim": "numpy",
}  # by extra: a library that only this extra installs


_OPTIONS = {"worker": ("-X", "no_debug_ranges")}
"""By extra: options of the interpreter. An idle worker is to be small: its tracebacks name lines, and no columns."""


def program(module: str, extra: str, *arguments: str) -> list[str]:
    """Return the command line of one of our programs. Raises LooplineError if its libraries are missing."""
    require(extra)
    # Without -P, -m looks into the working folder first, where a user's own random.py would be taken for Python's.
    return [sys.executable, "-P", *_OPTIONS.get(extra, ()), "-m", module, *arguments]


def require(*extras: str) -> None:
    """Raises LooplineError, with one command that installs them all, if libraries of these extras are missing."""
    missing = [extra for extra in extras if not importlib.util.find_spec(_NEEDS[extra])]
    if missing:
        message = f"the libraries of {' and '.join(f'the {extra}' for extra in missing)} are not installed"
        raise LooplineError("not_installed", message, f"install them: pip install 'loopline[{','.join(missing)}]'")


def become(command: list[str]) -> int:
    """Replace this process by a command; where the system cannot do that, run it and return its exit code."""
    if sys.platform != "win32":  # on Windows exec would return the terminal at once
        os.execv(command[0], command)  # noqa: S606
    return subprocess.run(command, check=False).returncode
