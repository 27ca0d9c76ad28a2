"""The sandbox of bubblewrap: tasks have file systems, processes and, where so set, a network of their own.

The namespaces are made once for each slot (``supervisor/walls/cell.py``); each task gets fresh mounts of its own. All
that a task starts dies with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_shared.configuration.settings_source import home
from loopline_shared.paths import TEMPORARY
from loopline_worker.launch.interface import LIBRARIES, Job
from loopline_worker.launch.visible_paths import LIVE, SYSTEM, Visible
from loopline_worker.supervisor.walls.cell_command import words_of

if TYPE_CHECKING:
    from loopline_worker.supervisor.walls.namespaces import Places

_PROBE_WITHIN_S = 10.0
_ALONE = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--as-pid-1"),
    *("--cap-drop", "ALL"),
)
_OF_ROOT = ("--cap-add", "CAP_SETFCAP")  # the kernel needs it for a user namespace that maps root
_EMPTY_BYTES = 64 * 2**10
"""Size of a folder that hides another: room for the mount points of what is shown within it."""
_SHARED = "/tmp"  # noqa: S108 - the task's own


class Bubblewrap:
    """Runs tasks by the program ``bwrap``."""

    def __init__(self, program: str, sees: Visible, etc: Path | None = None) -> None:
        """``etc``: a copy of the visible part of /etc."""
        self._program = program
        self._sees = sees
        self._etc = etc
        self._cells: dict[tuple[object, ...], tuple[int, list[str]]] = {}

    def walls(self, job: Job, has_network: bool) -> tuple[int, list[str], Places]:
        """Return the number of a task's cell, the program that makes it, and the task's own mounts."""
        around, _, name = (job.room or job.folder).rpartition(os.sep)
        scratch = _real(around or os.sep)
        return *self._cell(job, scratch, has_network), self._places(job, f"{scratch}{os.sep}{name}", has_network)

    def _cell(self, job: Job, scratch: str, has_network: bool) -> tuple[int, list[str]]:
        shared = self._shared_folder(job)
        libraries = job.libraries if job.root else {}
        key = scratch, job.shared_folder if shared else "", job.shown, job.device_files, has_network, bool(libraries)
        if key not in self._cells:
            own = ["--bind-try", shared, job.shared_folder] if shared else []
            own += [word for path in job.shown for word in ("--ro-bind", path, path)]
            own += [word for path in job.device_files for word in _show(path)]
            own += [word for name, path in libraries.items() for word in ("--ro-bind", path, f"{LIBRARIES}/{name}")]
            words = self._words([*own, "--bind", scratch, scratch])
            self._cells[key] = len(self._cells) + 1, words
        return self._cells[key]

    def _shared_folder(self, job: Job) -> str:
        """Return the resolved working folder of the job if it is shared here; empty for most jobs."""
        return self._sees.shared(job.shared_folder) if job.shared_folder else ""

    def _places(self, job: Job, room: str, has_network: bool) -> Places:
        """Return what is a task's own.

        Its /tmp is its own folder of temporary files, whose size is watched. Calls share a room, in which one could
        replace that folder by a link before the next one starts; and a folder below /tmp would contain itself. Both
        have one in memory.
        """
        also = [*job.shown, *([job.shared_folder] if self._shared_folder(job) else [])]
        kept = [*self._shown_in_shared, *(path for path in also if path.startswith(f"{_SHARED}/"))]
        in_memory = bool(job.room or kept) or room.startswith(f"{_SHARED}/")
        temporary = "" if in_memory else f"{room}/{TEMPORARY}"
        return room, temporary, job.limits.memory_bytes or 0, kept, has_network, job.root

    def obstacle(self) -> str:
        """Try it. Return the reason why it does not work here, or an empty text."""
        try:
            command = [*self._words(["--bind", "/usr", "/usr"]), "--", *words_of("probe", "/usr")]
            tried = subprocess.run(command, capture_output=True, timeout=_PROBE_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            return "bwrap hangs"
        if tried.returncode == 0:
            return ""
        said = tried.stderr.decode(errors="replace").strip()
        return said.splitlines()[-1] if said else f"bwrap failed with {tried.returncode}"

    def _words(self, own: list[str]) -> list[str]:
        seen = [*_of_size(_EMPTY_BYTES, _SHARED), "--symlink", _SHARED, "/var/tmp", *self._mounts]  # noqa: S108
        powers = [*_ALONE, *(_OF_ROOT if os.geteuid() == 0 else ())]
        return [self._program, "--dev", "/dev", "--proc", "/proc", *seen, *own, *self._read_only, *powers]

    @property
    def _read_only(self) -> list[str]:
        """Options that make memory file systems of the cell read-only: writes there would not be counted.

        HOME is the task's folder. The home of its user, where some programs look whatever HOME says, is empty.
        """
        homes = [str(own)] if (own := home()) not in (None, Path("/")) else []
        return [word for folder in (*homes, "/dev", "/") for word in ("--remount-ro", folder)]

    @cached_property
    def _shown_in_shared(self) -> list[str]:
        """Return the paths that are seen below the computer's /tmp, the outer ones first."""
        there = [str(path) for path in self._sees.shows if path.is_relative_to(_SHARED) and path.exists()]
        return sorted(there, key=len)

    @cached_property
    def _mounts(self) -> list[str]:
        """Options for the visible part of the computer."""
        seen = self._sees.system()
        if self._etc:
            seen = [path for path in seen if path in LIVE or not path.startswith("/etc/")]
        system = [(Path(path), _show(path)) for path in seen]
        system += [(Path("/etc"), ["--ro-bind", str(self._etc), "/etc"])] if self._etc else []
        shown = [(path, _show(str(path))) for path in self._sees.shows]
        hidden = [(path, _hide(path)) for path in self._sees.hidden()]
        own = home()
        own_home = [(own, _of_size(_EMPTY_BYTES, str(own)))] if own not in (None, Path("/")) else []
        parts = sorted([*own_home, *system, *shown, *hidden], key=lambda part: len(part[0].parts))
        return [word for _, words in parts for word in words]


def find() -> str | None:
    """Return the path of the program; None if it is not installed."""
    return shutil.which("bwrap")


@lru_cache(64)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


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
