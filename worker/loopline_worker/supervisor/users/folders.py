"""Folders of tasks that have a user of their own: lent to that user before, and handed over to the agent after.

What is made in them belongs to the group of the task's user, which the agent is in.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from loopline_worker.supervisor.spawn import apart
from loopline_worker.supervisor.users import credentials
from loopline_worker.supervisor.walls.inotify import FolderWatcher

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from loopline_worker.supervisor.users.credentials import TaskUser

_GIVE_GROUP = "ug+rwX,-t"
_FOLDER_MODE = 0o2770
_FOLDER_RIGHTS, _FILE_RIGHTS = 0o070, 0o060
_MOST_LOOKED_AT = 200
_SHARED = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108


def lend(folder: str, group: int) -> None:
    """Let the members of a group alone, beside the agent, use a folder that the agent made. Raises OSError.

    The caller is the agent's user, and in that group. Large inputs are links that others share: all may read those.
    """
    around = os.path.dirname(folder)  # noqa: PTH120 - pathlib is not light
    if not os.stat(around).st_mode & 0o001:  # noqa: PTH116
        os.chmod(around, 0o711)  # noqa: PTH101, S103 - through it, and nothing is listed
    for place, _, files in os.walk(folder):
        os.chown(place, -1, group)
        os.chmod(place, _FOLDER_MODE)  # noqa: PTH101
        for name in files:
            _lend_file(f"{place}/{name}", group)


def _lend_file(path: str, group: int) -> None:
    status = os.lstat(path)
    if status.st_nlink > 1:
        os.chmod(path, status.st_mode | 0o444)  # noqa: PTH101
        return
    os.chown(path, -1, group, follow_symlinks=False)
    if not os.path.islink(path):  # noqa: PTH114
        os.chmod(path, status.st_mode | 0o060 | (status.st_mode & 0o100) >> 3)  # noqa: PTH101


def hand_over(folder: str, user: TaskUser) -> None:
    """Let the user's group, which includes the agent, read, change and remove the user's files in a folder."""
    if _is_open(folder, user.gid):
        return
    with suppress(OSError):
        os.waitpid(_start(["chmod", "-Rf", _GIVE_GROUP, "--", folder], user), 0)


def _is_open(folder: str, group: int) -> bool:
    """True if the group may do so already, as with default modes. Of many files that is not known."""
    looked_at = 0
    try:
        for place, _, files in os.walk(folder, onerror=_fail):
            for path in (place, *(f"{place}/{name}" for name in files)):
                status, looked_at = os.lstat(path), looked_at + 1
                needed = _FOLDER_RIGHTS if path == place else _FILE_RIGHTS
                is_open = status.st_gid == group and status.st_mode & (needed | stat.S_ISVTX) == needed
                if not is_open or looked_at > _MOST_LOOKED_AT:
                    return False
    except OSError:
        return False
    return True


def _fail(error: OSError) -> None:
    raise error


class SharedFolders:
    """World-writable folders to clean of a user's files."""

    def __init__(self, user: TaskUser) -> None:
        self._user = user
        self._watcher = FolderWatcher()
        self._is_watched = False

    def clear(self) -> None:
        """Remove what the user has there, if anything has changed since the last time. Others' folders stay."""
        if self._is_watched and self._watcher.saw_nothing():
            return
        self._is_watched = self._watcher.watch(*filter(os.path.isdir, _SHARED))  # before the look: it misses nothing
        there = ["find", *_SHARED, "-mindepth", "1", "-maxdepth", "1", "-user", str(self._user.uid)]
        with suppress(OSError):
            os.waitpid(_start([*there, "-exec", "rm", "-rf", "--", "{}", "+"], self._user), 0)


def start_measuring(folder: str, user: TaskUser, answer: int) -> int:
    """Start to write to an open file how many bytes, and how many files, a folder of the user has. Raises OSError."""
    return _start(["sh", "-c", 'du -sB1 -- "$0"; du -s --inodes -- "$0"', folder], user, answer)


def _start(command: list[str], user: TaskUser, output: int | None = None) -> int:
    """Start a program of the system as a user; return its process id. Raises OSError."""

    def start() -> int:
        credentials.become(user)
        null = os.open(os.devnull, os.O_RDWR)
        to = {0: null, 1: null if output is None else output, 2: null}
        actions = [(os.POSIX_SPAWN_DUP2, file, one) for one, file in to.items()]
        try:
            return os.posix_spawn(f"/bin/{command[0]}", command, {"PATH": os.defpath}, file_actions=actions)
        finally:
            os.close(null)

    return apart(start)
