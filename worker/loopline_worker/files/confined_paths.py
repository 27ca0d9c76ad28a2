"""Paths confined to a folder that others may have changed: opened name by name, never through a link.

If the system can open relative to an open folder (POSIX), no program can swap a folder for a link in between.
Elsewhere (Windows) the path is checked first, and then used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISLNK

RELATIVE = os.open in os.supports_dir_fd and sys.platform != "win32"


class LinkError(OSError):
    """A link is in the place of a folder."""


@contextmanager
def folder(base: Path, names: Sequence[str] = (), *, make: bool = False) -> Iterator[int | None]:
    """Open the folder below ``base`` with these names; None if the system needs whole paths instead."""
    if not RELATIVE:
        _walk(base, names, make)
        yield None
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    handle = os.open(base, flags)
    try:
        for name in names:
            if make and not _exists(name, handle):
                os.mkdir(name, 0o755, dir_fd=handle)
            inner = os.open(name, flags, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def at(base: Path, names: Sequence[str], handle: int | None) -> str:
    """Return the path of the last of these names, for use with ``dir_fd=handle``."""
    return names[-1] if handle is not None else str(base.joinpath(*names))


def _walk(base: Path, names: Sequence[str], make: bool) -> None:
    place = base
    for name in names:
        place = place / name
        if make:
            place.mkdir(exist_ok=True)
        if S_ISLNK(place.lstat().st_mode) or not place.is_dir():
            raise LinkError(f"{place} is a link")


def _exists(name: str, handle: int) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
