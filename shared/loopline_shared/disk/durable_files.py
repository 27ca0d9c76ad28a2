"""Files and folders that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file in one step, readable by its owner only. It is on the disk on return.

    A power cut leaves the old content or the new. Raises OSError; then the old content is still there.
    """
    part = file.with_name(f".{file.name}.{token_hex(4)}")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
        sync_folder(file.parent)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder for its owner only, and its parents. Their names are on the disk on return. Raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can: a rename is certain only then."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
