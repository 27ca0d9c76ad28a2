"""Files that only the master's user may read: tokens, keys and secrets."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

from loopline_shared.errors import LooplineError


def read_private(file: Path) -> str:
    """Return the file's text; empty if there is no such file, or it cannot be read."""
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write_private(file: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner only; a power cut leaves one or the other.

    Raises LooplineError if that fails.
    """
    part = file.with_name(f".{file.name}.{token_hex(4)}")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
        sync_folder(file.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        message = f"cannot write a token to {file}: {error.strerror}"
        raise LooplineError("token_file", message, "give the master's user write access there") from None


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
