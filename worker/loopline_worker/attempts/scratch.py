"""The private folder of an attempt."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from loopline_shared.paths import TEMPORARY
from loopline_worker.supervisor import requests

VARIABLE = "LOOPLINE_SCRATCH"


def make(folder: Path) -> None:
    """Make an empty folder for an attempt. Raises OSError if the disk is full."""
    remove(folder)
    temporary(folder).mkdir(parents=True)


def remove(folder: Path) -> None:
    """Remove a folder with all its content; the sweep of the next agent removes any remains."""
    try:
        _remove(folder)
    except RecursionError:  # a task may nest its folders deeper than Python goes
        if os.name == "posix":
            subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)


def _remove(folder: Path) -> None:
    if folder.is_symlink():  # planted by a task of the same session; its target is not ours to delete
        folder.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and (zygote := requests.inherited()):  # files of a task's user remain
        with suppress(OSError):
            zygote.hand_over(str(folder))
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():  # a task may lock its own folders
        folder.chmod(0o700)
        for place, names, _ in os.walk(folder):
            for inner in (Path(place, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with suppress(OSError):  # there is still something in it
        folder.rmdir()


def temporary(folder: Path) -> Path:
    """Return the folder for temporary files, which is never searched for outputs."""
    return folder / TEMPORARY
