"""The file that LOOPLINE_PROGRESS names: a number from 0 to 1, which a running task may write again and again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from loopline_shared.paths import TEMPORARY
from loopline_worker.files import confined_paths

VARIABLE = "LOOPLINE_PROGRESS"
NAME = "progress"  # among the temporary files, where no output is searched for
REMARK = f"its progress is not shown: write a number from 0 to 1 to the file that {VARIABLE} names"
_MOST_BYTES = 64
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read(folder: Path) -> float | None:
    """Return what a running task wrote last; None if it wrote nothing. Raises ValueError unless it is such a number.

    No link is followed, because the task may change its folder in any way.
    """
    try:
        with confined_paths.folder(folder, (TEMPORARY,)) as handle:
            return _read(folder, handle)
    except OSError:  # there is no such folder, or the task has changed it
        return None


def _read(folder: Path, handle: int | None) -> float | None:
    try:
        file = os.open(confined_paths.at(folder, (TEMPORARY, NAME), handle), _FLAGS, dir_fd=handle)
        with os.fdopen(file, "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(file).st_mode)
            text = stream.read(_MOST_BYTES + 1) if is_file else b"no file"
        number = float(text) if text.strip() and len(text) <= _MOST_BYTES else None
    except FileNotFoundError:  # not written yet, or it is being replaced
        return None
    except (OSError, ValueError) as error:
        raise ValueError(REMARK) from error
    if len(text) > _MOST_BYTES or not (number is None or 0 <= number <= 1):
        raise ValueError(REMARK)
    return number  # None: it is being written
