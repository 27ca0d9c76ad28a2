"""Commands that become another program: the master's and the worker's code is never loaded into this one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Annotated

from cyclopts import App, Parameter

from loopline_shared.errors import LooplineError

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]

_NEEDS = {
    "master": "sqlalchemy",
    "worker": "psutil",
    "sim": "numpy",
}  # of each extra, a library that nothing else brings


def _passing_all_on(name: str, module: str, extra: str) -> App:
    """A command whose arguments, --help included, are all for ``python -m module``."""
    command = App(name=name, help_flags=(), version_flags=(), end_of_options_delimiter="")

    @command.default
    def pass_on(*arguments: Arguments) -> int:
        return become(program(module, extra, *arguments))

    return command


master = _passing_all_on("master", "loopline_master", "master")
worker = _passing_all_on("worker", "loopline_worker", "worker")
doctor = _passing_all_on("doctor", "loopline_worker.doctor", "worker")
owner = _passing_all_on("owner", "loopline_worker.owner", "worker")
simulate = _passing_all_on("simulate", "loopline_simulator", "sim")


def program(module: str, extra: str, *arguments: str) -> list[str]:
    """The command line of one of our programs; LooplineError where its libraries are not installed."""
    if not importlib.util.find_spec(_NEEDS[extra]):
        message = f"the {extra}'s libraries are not installed"
        raise LooplineError("not_installed", message, f"install them: pip install 'loopline[{extra}]'")
    # Without -P, -m looks into the working folder first, where a user's own random.py would be taken for Python's.
    return [sys.executable, "-P", "-m", module, *arguments]


def become(command: list[str]) -> int:
    """Never returns, where the operating system allows that; else the exit code."""
    if sys.platform != "win32":  # where exec would give the terminal back at once
        os.execv(command[0], command)  # noqa: S606
    return subprocess.run(command, check=False).returncode
