"""The state of a Python program or function, saved so that it continues there when it is started again.

On a grid the state is in the task's checkpoint folder (``loopline submit --checkpoint``,
``Executor(checkpoint=True)``). Without a grid it is in a file beside the script, whose name ends in ``.checkpoint``.
Only the standard library is needed.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

_NAME = "loopline.checkpoint"


def load(default: Any = None) -> Any:
    """Return the state that was saved last, or ``default`` if none was. It is unpickled: load only your own files."""
    try:
        with _place().open("rb") as file:
            return pickle.load(file)  # noqa: S301
    except FileNotFoundError:
        return default


def save(state: Any) -> None:
    """Save a state that can be pickled in place of the last one, whole or not at all.

    What was printed before belongs to the state: it is not printed again when the program continues.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    place = _place()
    unfinished = place.with_name(f"{place.name}.new")
    with unfinished.open("wb") as file:
        _pickler().dump(state, file, pickle.HIGHEST_PROTOCOL)
        if not _folder():  # on a grid the worker sees to it
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(place)


def _pickler() -> Any:
    """Return the module that pickles. In a function on a worker, classes of its script can travel only by value."""
    return sys.modules.get("cloudpickle", pickle) if "LOOPLINE_CALL" in os.environ else pickle


def _folder() -> str:
    """Return the task's folder for its state; empty without a grid."""
    return os.environ.get("LOOPLINE_CHECKPOINT") or os.environ.get("LOOPLINE_SCRATCH", "")


def _place() -> Path:
    if folder := _folder():
        return Path(folder, _NAME)
    script = getattr(sys.modules["__main__"], "__file__", None)
    return Path(script).with_suffix(".checkpoint") if script else Path(_NAME)
