"""Commands that become another program: the master's, the worker's and the simulator's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

from cyclopts import App, Parameter

from loopline.programs import become, program

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]


def _passing_all_on(name: str, module: str, extra: str, before: Callable[[], None] = lambda: None) -> App:
    """Make a command whose arguments, --help included, are all for ``python -m module``; ``before`` runs first."""
    command = App(name=name, help_flags=(), version_flags=(), end_of_options_delimiter="")

    @command.default
    def pass_on(*arguments: Arguments) -> int:
        before()
        return become(program(module, extra, *arguments))

    return command


def _warn_of_outdated_services() -> None:
    """Warn on stderr, so that what the program writes to stdout stays JSON under ``--json``."""
    from loopline.service import install as services  # the other commands here do not need it

    for reinstall in services.outdated_services():
        print(f"warning: {services.outdated(reinstall)}\n", file=sys.stderr, flush=True)


master = _passing_all_on("master", "loopline_master", "master")
worker = _passing_all_on("worker", "loopline_worker", "worker")
backup = _passing_all_on("backup", "loopline_master.maintenance.backup", "master")
fsck = _passing_all_on("fsck", "loopline_master.maintenance.fsck", "master")
restore = _passing_all_on("restore", "loopline_master.maintenance.restore", "master")
doctor = _passing_all_on("doctor", "loopline_worker.doctor", "worker", _warn_of_outdated_services)
owner = _passing_all_on("owner", "loopline_worker.owner", "worker")
simulate = _passing_all_on("simulate", "loopline_simulator", "sim")
