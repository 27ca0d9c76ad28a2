"""The sandbox around every task: the kinds that this computer supports, and their effect on a task's order.

Bubblewrap is the better one, for a task has a /tmp, a /dev/shm and processes of its own. Most computers without a
usable bubblewrap have Landlock.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loopline_shared.errors import LooplineError
from loopline_worker.launch import bubblewrap
from loopline_worker.launch.bubblewrap import Bubblewrap
from loopline_worker.launch.interface import Job
from loopline_worker.launch.visible_paths import Visible, copy_etc, visible
from loopline_worker.settings import NetworkAccess, SandboxChoice
from loopline_worker.supervisor.walls.cell_command import words_of

if TYPE_CHECKING:
    from loopline_worker.supervisor.walls.namespaces import Places

log = logging.getLogger(__name__)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
INSTALL = "install bubblewrap (on Debian or Ubuntu: sudo apt install bubblewrap)"
NO_SANDBOX = "none"
WORDS = {
    SandboxChoice.BUBBLEWRAP: "tasks run in a sandbox (bubblewrap) without files of this user",
    SandboxChoice.LANDLOCK: "tasks run in a sandbox (Landlock) without files of this user, /tmp or /dev/shm",
    NO_SANDBOX: "tasks run without a sandbox and may use all that this user may",
}
"""What each kind means, by the fact of its worker."""


_PROBE_WITHIN_S = 10.0


class Walls(NamedTuple):
    """Fields that a sandbox adds to a task's order, by the names of ``TaskOrder``."""

    cell: int = 0
    walls: list[str] | None = None
    places: Places | None = None
    paths: dict[str, bool] | None = None
    reaches: list[str] | None = None
    open_hosts: list[str] | None = None


_ENCLOSED = Walls(cell=1, walls=[""])
"""The cell of tasks under Landlock: no program but Python makes it."""

_NO_DEMAND = NetworkAccess.AUTO, NetworkAccess.ALL
"""Settings that Landlock can meet, which keeps no network from tasks."""


class Sandbox:
    """The sandbox around each task of this worker."""

    def __init__(
        self, sees: Visible, network: NetworkAccess, wrapper: Bubblewrap | None, *, encloses: bool = False
    ) -> None:
        """``wrapper``: None for Landlock. ``encloses``: Landlock's tasks have a process namespace, too."""
        self.opens: Sequence[str] = ()
        """Addresses that all tasks may connect to, although they are this computer's or link-local."""
        self._encloses = encloses
        self._sees = sees
        self._network = network
        self._wrapper = wrapper
        self.kind = SandboxChoice.BUBBLEWRAP if wrapper else SandboxChoice.LANDLOCK

    @property
    def grants_network(self) -> bool:
        """True if tasks of a job that asks for the network have it."""
        return self._network in (NetworkAccess.ALL, NetworkAccess.REQUESTED)

    @property
    def grants_gangs(self) -> bool:
        """True if members of a gang that asks for the network reach one another."""
        return self._network is not NetworkAccess.NONE

    @property
    def is_cell(self) -> bool:
        """True if the kernel ends a task's processes as soon as Loopline's processes are gone."""
        return bool(self._wrapper) or self._encloses

    def walls(self, job: Job, *, has_user: bool = False) -> Walls:
        """Return what is done to the order of this task.

        ``has_user``: it runs as a user of its own, so that its remaining processes can be found.
        """
        if self._wrapper:
            has_network = self._has_network(job)
            job.may_request_network = self.grants_network and not has_network
            reaches = list(job.hosts) if has_network and self._network is NetworkAccess.GANGS else None
            return Walls(*self._wrapper.walls(job, has_network), reaches=reaches, open_hosts=self._open_hosts(job))
        walls = _ENCLOSED if self._encloses and not has_user else Walls()
        return walls._replace(paths=self._paths(job), open_hosts=self._open_hosts(job))

    def _open_hosts(self, job: Job) -> list[str]:
        return [*job.hosts, *self.opens]

    def _has_network(self, job: Job) -> bool:
        if self._network is NetworkAccess.GANGS:
            return job.network and bool(job.hosts)
        return self._network is NetworkAccess.ALL or (self._network is NetworkAccess.REQUESTED and job.network)

    def _paths(self, job: Job) -> dict[str, bool]:
        shared = self._sees.shared(job.shared_folder)
        writable = [job.room or job.folder, *([shared] if shared else [])]
        devices = {path: path.startswith("/dev/") for path in job.device_files}
        return {**self._readable, **dict.fromkeys(job.shown, False), **devices, **dict.fromkeys(writable, True)}

    @cached_property
    def _readable(self) -> dict[str, bool]:
        shown = _without(self._sees.shows, self._sees.hidden())
        paths = dict.fromkeys((*self._sees.system(), *map(str, shown), "/proc"), False)
        return {**paths, **dict.fromkeys(_DEVICES, True)}


def open_sandbox(
    choice: SandboxChoice = SandboxChoice.AUTO,
    network: NetworkAccess = NetworkAccess.ALL,
    shows: Sequence[Path] = (),
    hides: Sequence[Path] = (),
    shares: Sequence[str] = (),
    etc: Path | None = None,
    opens: Sequence[str] = (),
    *,
    is_service: bool = False,
) -> Sandbox | None:
    """Return the sandbox of this worker; None for OFF, and for AUTO where there can be none.

    ``is_service``: of the system, so that AUTO gives a network on request alone where there is bubblewrap. ``etc``: a
    folder for a copy of the visible part of /etc, which makes starts quicker. ``opens``: addresses that
    tasks may connect to, although they are this computer's or link-local.

    Raises LooplineError if this computer cannot have the kind, or Landlock cannot keep the network from tasks.
    """
    if choice is SandboxChoice.OFF:
        return None
    found, reasons = _find(visible(shows, hides, shares), choice, network, etc, is_service=is_service)
    if found:
        found.opens = opens
        return found
    if choice is not SandboxChoice.AUTO or network not in _NO_DEMAND:
        message = f"this computer can have no sandbox: {reasons}"
        raise LooplineError("sandbox", message, f"{INSTALL}, or leave --sandbox out")
    log.warning("%s: %s; %s", WORDS[NO_SANDBOX], reasons, INSTALL)
    return None


def kind_here() -> tuple[str, str]:
    """Return the kind that AUTO has on this computer, as a fact of its worker, and why there is no better one."""
    found, reasons = found_here()
    return found.kind if found else NO_SANDBOX, reasons


def found_here() -> tuple[Sandbox | None, str]:
    """Return the sandbox that AUTO has on this computer, and why there is no better one."""
    return _find(visible(), SandboxChoice.AUTO, NetworkAccess.ALL)


def obstacle() -> str:
    """Try bubblewrap. Return the reason why it does not work, or an empty text."""
    return _find(visible(), SandboxChoice.BUBBLEWRAP, NetworkAccess.ALL)[1]


def _find(
    sees: Visible, choice: SandboxChoice, network: NetworkAccess, etc: Path | None = None, *, is_service: bool = False
) -> tuple[Sandbox | None, str]:
    """Return the sandbox and the reasons, divided by semicolons, why there is no better one."""
    reasons: list[str] = []
    if choice is not SandboxChoice.LANDLOCK:
        wrapper, reason = _bubblewrap(sees, etc)
        if network is NetworkAccess.GANGS and not _can_filter():
            wrapper = None
            reason = "sandbox_network = gangs needs seccomp's notifications, which this computer refuses"
        if wrapper:
            if network is NetworkAccess.AUTO:
                network = NetworkAccess.REQUESTED if is_service else NetworkAccess.ALL
            return Sandbox(sees, network, wrapper), ""
        reasons.append(reason)
    if choice is not SandboxChoice.BUBBLEWRAP:
        if network not in _NO_DEMAND:
            reasons.append("Landlock keeps no network from tasks: only bubblewrap can do what sandbox_network says")
        elif reason := without_landlock():
            reasons.append(reason)
        else:
            return Sandbox(sees, NetworkAccess.ALL, None, encloses=_can_enclose()), "; ".join(reasons)
    return None, "; ".join(reasons)


def without_landlock() -> str:
    """Return why there is no Landlock, or an empty text."""
    from loopline_worker.supervisor.walls import landlock  # only where it is needed: the agent stays light

    return (
        "" if landlock.version() else "this kernel has no Landlock, which Linux 5.13 or later has where it is enabled"
    )


def _can_filter() -> bool:
    from loopline_worker.supervisor.walls import connect_filter

    return connect_filter.is_possible()


def _can_enclose() -> bool:
    """True if the kernel lets tasks have a process namespace, which ends with its first process."""
    with suppress(OSError, subprocess.TimeoutExpired):
        tried = subprocess.run(words_of("probe_enclosed"), capture_output=True, timeout=_PROBE_WITHIN_S, check=False)
        return tried.returncode == 0
    return False


def _bubblewrap(sees: Visible, etc: Path | None) -> tuple[Bubblewrap | None, str]:
    program = bubblewrap.find() if sys.platform == "linux" else None
    if program is None:
        return None, "there is no bwrap program"
    wrapper = Bubblewrap(program, sees, copy_etc(etc) if etc else None)
    reason = wrapper.obstacle()
    return (None if reason else wrapper), reason


def _without(shown: Iterable[Path], hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield the shown paths; for a folder with hidden entries, its other current entries."""
    for path in shown:
        real = Path(os.path.realpath(path))
        if real in hidden:
            continue
        if any(one.is_relative_to(real) for one in hidden) and real.is_dir():
            with suppress(OSError):
                yield from _without(real.iterdir(), hidden)
        else:
            yield path
