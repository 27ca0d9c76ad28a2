"""The sandbox of bubblewrap: each task has file systems, processes and, where so set, a network of its own.

What a task starts dies with it, because its process namespace ends.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from loopline_shared.paths import TEMPORARY
from loopline_worker.launch.interface import Job
from loopline_worker.launch.visible_paths import LIVE, SYSTEM, Visible

_PROBE_WITHIN_S = 10.0
_ALONE = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL"),  # else a task of a root worker could unmount what hides files from it
)
_EMPTY_BYTES = 64 * 2**10
"""Size of a folder that hides another: room for the mount points of what is shown within it."""
_SHARED = "/tmp"  # noqa: S108 - the task's own, see ``_temporary``


class Bubblewrap:
    """Runs tasks by the program ``bwrap``."""

    def __init__(self, program: str, sees: Visible, etc: Path | None = None) -> None:
        """``etc``: a copy of what is seen of /etc."""
        self._program = program
        self._sees = sees
        self._etc = etc

    @property
    def is_setuid(self) -> bool:
        """True where bubblewrap has its powers from its file, and not from the kernel's user namespaces."""
        with suppress(OSError):
            return bool(Path(self._program).stat().st_mode & stat.S_ISUID)
        return False

    def words(self, job: Job, has_network: bool) -> list[str]:
        """Return the program with its options for a task, among them the task's environment."""
        folder, room = os.path.realpath(job.folder), os.path.realpath(job.room or job.folder)
        shared = self._sees.shared(job.shared_folder)
        own = [*(["--bind-try", shared, job.shared_folder] if shared else []), "--bind", room, room]
        memory = _of_size(job.limits.memory_bytes, "/dev/shm")  # noqa: S108
        system = [*(job.system or self._mounts), *(word for path in job.shown for word in ("--ro-bind", path, path))]
        read_only = ["--remount-ro", "/dev", "--remount-ro", "/"] if job.system else self._read_only
        places = [*_temporary(job, folder, room), *memory, *system, *own, *read_only, "--chdir", folder]
        environment = [word for pair in job.environment.items() for word in ("--setenv", *pair)]
        network = [] if has_network else ["--unshare-net"]
        return [self._program, "--dev", "/dev", "--proc", "/proc", *places, *_ALONE, *network, *environment]

    def obstacle(self) -> str:
        """Try it. Return the reason why it does not work here, or an empty text."""
        with suppress(subprocess.TimeoutExpired):
            mounts = ["--dev", "/dev", "--proc", "/proc", *self._mounts, *self._read_only]
            command = [self._program, *mounts, *_ALONE, "--", "/bin/true"]
            tried = subprocess.run(command, capture_output=True, timeout=_PROBE_WITHIN_S, check=False)
            if tried.returncode == 0:
                return ""
            return tried.stderr.decode(errors="replace").strip() or f"bwrap failed with {tried.returncode}"
        return "bwrap hangs"

    @property
    def _read_only(self) -> list[str]:
        """The options for what is kept in memory and is not the task's: what it wrote there would be counted nowhere.

        HOME is the task's folder. The home of its user, where some programs look whatever HOME says, is empty.
        """
        homes = [] if Path.home() == Path("/") else [str(Path.home())]
        return [word for folder in (*homes, "/dev", "/") for word in ("--remount-ro", folder)]

    @cached_property
    def _mounts(self) -> list[str]:
        """The options that are the same for every task: found once, for that takes longer than a short task."""
        seen = self._sees.system()
        if self._etc:
            seen = [path for path in seen if path in LIVE or not path.startswith("/etc/")]
        system = [(Path(path), _show(path)) for path in seen]
        system += [(Path("/etc"), ["--ro-bind", str(self._etc), "/etc"])] if self._etc else []
        shown = [(path, _show(str(path))) for path in self._sees.shows]
        hidden = [(path, _hide(path)) for path in self._sees.hidden()]
        home = Path.home()
        own_home = [] if home == Path("/") else [(home, _of_size(_EMPTY_BYTES, str(home)))]
        parts = sorted([*own_home, *system, *shown, *hidden], key=lambda part: len(part[0].parts))
        return [word for _, words in parts for word in words]


def find() -> str | None:
    """Return the path of the program; None if it is not installed."""
    return shutil.which("bwrap")


def _temporary(job: Job, folder: str, room: str) -> list[str]:
    """Return the options for the task's /tmp: its own folder of temporary files, whose size is watched.

    Calls share a room, in which one could replace that folder by a link while the next one starts; and a folder below
    /tmp would be in itself. Both have one in memory.
    """
    links = ["--symlink", _SHARED, "/var/tmp"]  # noqa: S108
    if job.room or room.startswith(f"{_SHARED}/"):
        return [*_of_size(job.limits.memory_bytes, _SHARED), *links]
    return ["--bind", f"{folder}/{TEMPORARY}", _SHARED, *links]


def _of_size(limit_bytes: int | None, folder: str) -> list[str]:
    """Return the options for a folder in memory; without a limit it takes half of all memory."""
    return [*(["--size", str(limit_bytes)] if limit_bytes else []), "--tmpfs", folder]


def _show(path: str) -> list[str]:
    if path in SYSTEM and os.path.islink(path):  # noqa: PTH114
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115
    return ["--dev-bind-try" if path.startswith("/dev/") else "--ro-bind-try", path, path]


def _hide(path: Path) -> list[str]:
    """Return the options that hide what exists now: a folder looks empty, a file cannot be read."""
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where a folder above may not be looked into
        return _of_size(_EMPTY_BYTES, str(path))
    return ["--ro-bind", os.devnull, str(path)] if os.path.isfile(path) else []  # noqa: PTH113
