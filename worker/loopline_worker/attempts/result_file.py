"""The file that LOOPLINE_RESULT names: one JSON object of names and numbers, the task's metrics."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_shared.paths import TEMPORARY
from loopline_shared.protocol.attempt_figures import MAX_METRICS, Metrics
from loopline_worker.files import confined_paths

VARIABLE = "LOOPLINE_RESULT"
NAME = "result.json"  # among the temporary files, where no output is searched for
_MOST_BYTES = 16 * 1024
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_ADAPTER: TypeAdapter[dict[str, float]] = TypeAdapter(Metrics, config={"defer_build": True})
_REMARK = (
    f"its metrics are not kept: write one JSON object of at most {MAX_METRICS} names and finite numbers, "
    f"of {_MOST_BYTES // 1024} kB at most, to the file that {VARIABLE} names"
)


def exists(folder: Path) -> bool:
    """True if a task left anything at the path of this file. No link is followed."""
    try:
        with confined_paths.folder(folder, (TEMPORARY,)) as handle:
            os.stat(confined_paths.at(folder, (TEMPORARY, NAME), handle), dir_fd=handle, follow_symlinks=False)
    except OSError:
        return False
    return True


def read(folder: Path) -> tuple[dict[str, float] | None, str]:
    """Return the metrics that a task left in its folder, or None and a remark if the file is not valid.

    No link is followed, because the task may have changed its folder in any way.
    """
    if not exists(folder):
        return None, ""
    try:
        with confined_paths.folder(folder, (TEMPORARY,)) as handle:
            file = os.open(confined_paths.at(folder, (TEMPORARY, NAME), handle), _FLAGS, dir_fd=handle)
        with os.fdopen(file, "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(file).st_mode)
            text = stream.read(_MOST_BYTES + 1) if is_file else b""
        return (None, _REMARK) if len(text) > _MOST_BYTES else (_ADAPTER.validate_json(text), "")
    except (OSError, ValidationError):
        return None, _REMARK
