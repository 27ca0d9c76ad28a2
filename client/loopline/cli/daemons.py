"""Commands that become another program: the master's, the worker's and the simulator's."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from loopline.programs import become, program

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]


def _passing_all_on(name: str, module: str, extra: str) -> App:
    """Make a command whose arguments, --help included, are all for ``python -m module``."""
    command = App(name=name, help_flags=(), version_flags=(), end_of_options_delimiter="")

    @command.default
    def pass_on(*arguments: Arguments) -> int:
        return become(program(module, extra, *arguments))

    return command


master = _passing_all_on("master", "loopline_master", "master")
worker = _passing_all_on("worker", "loopline_worker", "worker")
backup = _passing_all_on("backup", "loopline_master.maintenance.backup", "master")
fsck = _passing_all_on("fsck", "loopline_master.maintenance.fsck", "master")
restore = _passing_all_on("restore", "loopline_master.maintenance.restore", "master")
doctor = _passing_all_on("doctor", "loopline_worker.doctor", "worker")
owner = _passing_all_on("owner", "loopline_worker.owner", "worker")
simulate = _passing_all_on("simulate", "loopline_simulator", "sim")
