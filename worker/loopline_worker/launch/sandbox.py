"""A sandbox around every task, by bubblewrap: the system is read-only and the owner's files are hidden.

The task sees its scratch folder, the system read-only (the agent's Python included), an empty /tmp, /run and home,
and its own processes. It has no network unless its job requests it and this worker allows it. What it starts dies
with it, because its process namespace ends.
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
"""The agent's own Python, often in somebody's home, is the one that tasks find in PATH."""
_PROBE_WITHIN_S = 10.0
_EMPTY = ("/tmp", "/var/tmp", "/run", "/home", "/root", "/mnt", "/media")  # noqa: S108
_ALONE = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL"),  # else a task of a root worker could unmount what hides files from it
)
_NETWORK = ("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve")
"""The target of /etc/resolv.conf on many systems."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox around each task of this worker.

    ``shows``: folders that tasks may read although they are in a home or the like. ``hides``: folders and files that
    they may not read. Of two that are within each other, the inner one counts. ``shares``: folders that jobs may
    run in and write to, if they ask for it.
    """

    program: str
    allows_network: bool = False
    shows: tuple[Path, ...] = ()
    hides: tuple[Path, ...] = ()
    shares: tuple[str, ...] = ()

    def options(self, job: Job) -> list[str]:
        """Return the program with its options for a task, among them the task's environment."""
        folder, room = os.path.realpath(job.folder), os.path.realpath(job.room or job.folder)
        own = [*self._shared(job.shared_folder), "--bind", room, room, "--chdir", folder]
        network = _NETWORK if job.network and self.allows_network else ("--unshare-net",)
        environment = [word for pair in job.environment.items() for word in ("--setenv", *pair)]
        return [self.program, *_system(), *self._folders(), *own, *_ALONE, *network, *environment]

    def _shared(self, folder: str) -> list[str]:
        """Return the options that let a task into the folder that it runs in, if that is shared here."""
        real = Path(os.path.realpath(folder)) if folder else None
        is_shared = real is not None and any(real.is_relative_to(os.path.realpath(one)) for one in self.shares)
        return ["--bind-try", str(real), folder] if is_shared else []

    def _folders(self) -> list[str]:
        shown = [(path, ("--ro-bind", str(path), str(path))) for path in self.shows]
        hidden = [(Path(words[-1]), words) for path in self.hides if (words := _hide(path))]
        return [word for _, words in sorted([*shown, *hidden], key=_depth) for word in words]


def open_sandbox(
    allows_network: bool = False,
    shows: Sequence[Path] = (),
    hides: Sequence[Path] = (),
    shares: Sequence[str] = (),
) -> Sandbox:
    """Return the sandbox of this worker. Raises LooplineError if this computer cannot have one."""
    if reason := obstacle():
        hint = "install bubblewrap (on Debian or Ubuntu: sudo apt install bubblewrap), or leave --sandbox out"
        raise LooplineError("sandbox", f"this computer can have no sandbox: {reason}", hint)
    folders = [*_PYTHON, *shows]
    there = tuple(folder.absolute() for folder in folders if folder.exists())
    return Sandbox(_find() or "", allows_network, there, tuple(path.absolute() for path in hides), tuple(shares))


def obstacle() -> str:
    """Try a sandbox. Return the reason why there can be none, or an empty text."""
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
    """Return the options that hide what exists now: a folder looks empty, a file cannot be read."""
    real = os.path.realpath(path)
    if os.path.isdir(real):  # noqa: PTH112 - Path.is_dir raises where a folder above may not be looked into
        return ("--tmpfs", real)
    return ("--ro-bind", os.devnull, real) if os.path.isfile(real) else ()  # noqa: PTH113


def _depth(folder: tuple[Path, tuple[str, ...]]) -> int:
    return len(folder[0].parts)


def _find() -> str | None:
    return shutil.which("bwrap")


def _system() -> list[str]:
    """Return the options for a read-only system, with empty folders in place of those of its users."""
    empty = [word for folder in _empty_folders() for word in ("--tmpfs", folder)]
    return ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *empty]


def _empty_folders() -> list[str]:
    """Return each folder once; a link is replaced by its target."""
    there = (os.path.realpath(folder) for folder in (*_EMPTY, str(Path.home())))
    return sorted({folder for folder in there if folder != "/" and Path(folder).is_dir()})
