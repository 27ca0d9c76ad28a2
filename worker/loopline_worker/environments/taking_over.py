"""Environments that a task's user has built: copied by the agent, whose files they then are.

The user could change its own files later, and files that others may write to are useless for other users.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from loopline_worker.attempts import scratch
from loopline_worker.environments.build_error import BuildError

_FOLDER, _PROGRAM, _FILE = 0o755, 0o755, 0o644
_PARTIAL = ".own"
"""What follows an environment's name while it is copied; as it is not complete, the next agent removes it."""


def take_over(folder: Path) -> None:
    """Copy a folder in place, so that all in it is the agent's and all users may read it. Raises BuildError, OSError.

    Nothing of the user may run, and the agent may read what the user has made. Symbolic links stay as they are.
    """
    own = folder.with_name(folder.name + _PARTIAL)
    scratch.remove(own)
    try:
        shutil.copytree(folder, own, symlinks=True, copy_function=_copy)
    except (shutil.Error, RecursionError) as error:
        scratch.remove(own)
        reason = error.args[0][0][-1] if isinstance(error, shutil.Error) else "its folders are nested too deep"
        raise BuildError(f"what was built cannot be copied: {reason}", is_users=True) from None
    for place, _, _ in os.walk(own):
        os.chmod(place, _FOLDER)  # noqa: PTH101 - many folders
    scratch.remove(folder)
    own.rename(folder)


def _copy(source: str, target: str) -> None:
    """Copy one file with its time. A link to a file of the agent's would give that away."""
    status = os.lstat(source)
    if not stat.S_ISREG(status.st_mode) or (status.st_uid == os.geteuid() and status.st_nlink > 1):
        raise OSError(f"{source} is no file of its own")
    shutil.copyfile(source, target)
    os.chmod(target, _PROGRAM if status.st_mode & 0o100 else _FILE)  # noqa: PTH101
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
