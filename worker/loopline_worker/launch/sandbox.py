"""A sandbox round every task, by bubblewrap: a system that it can only read, and nothing of its owner's.

The task sees its scratch folder, the system read-only (the agent's Python included), an empty /tmp, /run and home,
its own processes, and no network unless its job asks for it and this worker allows it. What it starts dies with it:
its process namespace goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_worker.launch.interface import Job

_PYTHON = (Path(sys.base_prefix), Path(sys.prefix))
"""The agent's own, often in somebody's home, is the one that tasks find in PATH."""
_PROBE_WITHIN_S = 10.0
_EMPTY = ("/tmp", "/var/tmp", "/run", "/home", "/root", "/mnt", "/media")  # noqa: S108
_ALONE = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL"),  # a task of a worker that is root would unmount what hides things from it
)
_NETWORK = ("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve")
"""Where /etc/resolv.conf may lead."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``shows``: folders that tasks may read although they are in a home or the like; ``hides``: what they may not
    read, files too.

    Of two that are within each other, the inner one's word counts.
    """

    program: str
    allows_network: bool = False
    shows: tuple[Path, ...] = ()
    hides: tuple[Path, ...] = ()

    def options(self, job: Job) -> list[str]:
        """The program, and what it is to be told for a job: its task's environment too, which it must not have."""
        folder, room = os.path.realpath(job.folder), os.path.realpath(job.room or job.folder)
        own = ["--bind", room, room, "--chdir", folder]
        network = _NETWORK if job.network and self.allows_network else ("--unshare-net",)
        environment = [word for pair in job.environment.items() for word in ("--setenv", *pair)]
        return [self.program, *_system(), *self._folders(), *own, *_ALONE, *network, *environment]

    def _folders(self) -> list[str]:
        shown = [(path, ("--ro-bind", str(path), str(path))) for path in self.shows]
        hidden = [(Path(words[-1]), words) for path in self.hides if (words := _hide(path))]
        return [word for _, words in sorted([*shown, *hidden], key=_depth) for word in words]


def open_sandbox(allows_network: bool = False, shows: Sequence[Path] = (), hides: Sequence[Path] = ()) -> Sandbox:
    """LooplineError where this computer can have none."""
    if reason := why_not():
        hint = "install bubblewrap (on Debian or Ubuntu: sudo apt install bubblewrap), or leave --sandbox out"
        raise LooplineError("sandbox", f"this computer can have no sandbox: {reason}", hint)
    folders = [*_PYTHON, *shows]
    there = tuple(folder.absolute() for folder in folders if folder.exists())
    return Sandbox(_find() or "", allows_network, there, tuple(path.absolute() for path in hides))


def why_not() -> str:
    """What is in the way of a sandbox; empty: nothing, which is tried."""
    program = _find()
    if program is None:
        return "there is no bwrap program"
    with suppress(subprocess.TimeoutExpired):
        command = [program, *_system(), *_ALONE, "--unshare-net", "--", "/bin/true"]
        tried = subprocess.run(command, capture_output=True, timeout=_PROBE_WITHIN_S, check=False)
        if tried.returncode == 0:
            return ""
        return tried.stderr.decode(errors="replace").strip() or f"bwrap failed with {tried.returncode}"
    return "bwrap hangs"


def _hide(path: Path) -> tuple[str, ...]:
    """What is there at this moment: a folder is empty instead, a file cannot be read."""
    real = os.path.realpath(path)
    if os.path.isdir(real):  # noqa: PTH112 - Path.is_dir raises where a folder above may not be looked into
        return ("--tmpfs", real)
    return ("--ro-bind", os.devnull, real) if os.path.isfile(real) else ()  # noqa: PTH113


def _depth(folder: tuple[Path, tuple[str, ...]]) -> int:
    return len(folder[0].parts)


def _find() -> str | None:
    return shutil.which("bwrap")


def _system() -> list[str]:
    """The system read-only, with fresh empty folders where there is something of its users."""
    empty = [word for folder in _empty_folders() for word in ("--tmpfs", folder)]
    return ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *empty]


def _empty_folders() -> list[str]:
    """Each once: of a folder that is a link to another, only the other."""
    there = (os.path.realpath(folder) for folder in (*_EMPTY, str(Path.home())))
    return sorted({folder for folder in there if folder != "/" and Path(folder).is_dir()})
