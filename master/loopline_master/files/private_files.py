"""Files that only the master's user may read: tokens, keys and secrets."""

from __future__ import annotations

from pathlib import Path

from loopline_shared.disk.durable_files import replace_file
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
    try:
        replace_file(file, f"{text}\n".encode())
    except OSError as error:
        message = f"cannot write a token to {file}: {error.strerror}"
        raise LooplineError("token_file", message, "give the master's user write access there") from None
