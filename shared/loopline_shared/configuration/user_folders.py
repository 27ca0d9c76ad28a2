"""The user's folders of Loopline. Programs need them before they import a library of settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import platformdirs

from loopline_shared.errors import LooplineError

FolderKind = Literal["config", "data", "state", "log"]
_NO_HOME = "this user has no home folder: HOME is not set, and passwd has no entry"


def user_folder(kind: FolderKind) -> Path:
    """Return a folder of Loopline. Raises LooplineError if this user has no home."""
    found = known_user_folder(kind)
    if found is None:
        hint = "set HOME to an absolute path; a worker or master with --data-dir does without"
        raise LooplineError("settings", _NO_HOME, hint)
    return found


def known_user_folder(kind: FolderKind) -> Path | None:
    """Return a folder of Loopline; None if this user has no home."""
    finders: dict[FolderKind, Callable[..., Path]] = {
        "config": platformdirs.user_config_path,
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
        "log": platformdirs.user_log_path,
    }
    try:
        found = finders[kind]("loopline", appauthor=False)
    except RuntimeError:
        return None
    return found if found.is_absolute() else None  # an earlier platformdirs leaves "~" as it is
