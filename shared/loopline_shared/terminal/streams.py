"""The standard streams of a command, in whatever state it was started with them."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def complete() -> None:
    """Open the streams that the command was started without, and have stdout take any letter."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # each takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 to the end
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # such as ü for a terminal in ASCII


def discard_output() -> None:
    """Drop what stdout still has to write, and all that comes after: nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_of_output(error: OSError) -> bool:
    """True if the error is that of a stream on a full or broken disk, and of no file that has a name."""
    return error.filename is None and error.errno in _UNWRITABLE
