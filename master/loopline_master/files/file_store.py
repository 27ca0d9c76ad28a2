"""The place of whole files, each under the SHA-256 of its content: a folder, or a bucket (bucket_store.py).

Uploads are staged and hashed before (blobs.py), in ``folder`` of the store. Its methods may take as long as a disk or
a network takes: an event loop calls them in threads, except where ``is_near``.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from loopline_master.timings import RETAINED_FOR_S
from loopline_shared.disk.durable_files import sync_folder
from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import DirectUpload

INCOMING = "incoming"
"""Folder of incomplete files, beside the complete ones."""
_SEAL = "user.loopline.seal"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileStore(Protocol):
    """Keeps files. A file that is about to be named by a row is *retained*: it stays for a while without a name."""

    folder: Path
    """On this computer: for uploads under way, and for what ``find`` returns."""
    is_near: bool
    """True if it answers at once."""

    def find(self, sha256: str) -> Path | None:
        """Return the path of a file on this computer; None if it is not kept."""

    def retain(self, sha256: str) -> int | None:
        """Retain a file, and return its size; None if it is not kept."""

    def keep(self, file: IO[bytes], part: Path, sha256: str, seal: str) -> None:
        """Take in a whole file, open as ``file`` in ``part``; it is safe on return, and ``part`` is gone."""

    def remove(self, sha256: str, before: float) -> bool:
        """Remove a file unless it was retained since ``before``. Returns True if it is gone."""

    def older(self, before: float) -> Iterator[Mapping[str, int]]:
        """Generate the sizes of files that were last retained before this time, by name, in small parts."""

    def may_have(self, sha256: str) -> bool:
        """Return False if the file is certainly not kept."""

    def direct_url(self, sha256: str) -> str | None:
        """Return an address to fetch a file from past the master; None if it cannot be."""

    def direct_upload(self, sha256: str, size_bytes: int) -> DirectUpload | None:
        """Return where to send a file past the master; None if it cannot be."""

    def tidy(self) -> None:
        """Remove what is on this computer only to be quicker at hand, and has not been used lately."""


class FolderStore:
    """Keeps files in a folder, as ``ab/cdef...``. When one was last retained is its modification time."""

    is_near = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        """Held while a file is retained or removed, so that a retained file is there and stays for a while."""

    def find(self, sha256: str) -> Path | None:
        """Return the path of a file; None if it is not here."""
        path = self._path(sha256)
        return path if path.is_file() else None

    def retain(self, sha256: str) -> int | None:
        """Retain a file, and return its size; None if it is not here."""
        path = self._name(sha256)
        with self._lock, suppress(FileNotFoundError):
            found = os.stat(path)  # noqa: PTH116 each submission of a function looks here: a Path is most of the work
            if found.st_mtime < time.time() - RETAINED_FOR_S:
                os.utime(path)
            return found.st_size
        return None

    def keep(self, file: IO[bytes], part: Path, sha256: str, seal: str) -> None:
        """Give a whole file its seal and its name, so that a power cut leaves the whole file or none."""
        path = self._path(sha256)
        file.flush()
        if seal:
            with suppress(OSError, AttributeError):  # not every disk or system has extended attributes
                os.setxattr(file.fileno(), _SEAL, seal.encode())
        os.fsync(file.fileno())
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.utime(file.fileno() if os.utime in os.supports_fd else part)
        part.replace(path)
        for folder in (path.parent, path.parent.parent):
            sync_folder(folder)

    def remove(self, sha256: str, before: float) -> bool:
        """Remove a file unless it was retained since ``before``. Returns True if it is gone."""
        path = self._path(sha256)
        with self._lock, suppress(FileNotFoundError):
            if path.stat().st_mtime < before - RETAINED_FOR_S:
                path.unlink()
                return True
        return False

    def older(self, before: float) -> Iterator[Mapping[str, int]]:
        """Generate the sizes of files that were last retained before this time, one subfolder after the other."""
        for folder in sorted(self.folder.iterdir()):
            if len(folder.name) == 2:
                statuses = ((file.name, file.stat()) for file in folder.iterdir())
                yield {folder.name + name: found.st_size for name, found in statuses if found.st_mtime < before}

    def may_have(self, sha256: str) -> bool:
        """Return True if the file is here."""
        return self.find(sha256) is not None

    def direct_url(self, sha256: str) -> str | None:
        """Return None: only the master reads its folder."""
        return None

    def direct_upload(self, sha256: str, size_bytes: int) -> DirectUpload | None:
        """Return None: only the master writes to its folder."""
        return None

    def tidy(self) -> None:
        """Do nothing: all of it is kept."""

    def _path(self, sha256: str) -> Path:
        return Path(self._name(sha256))

    def _name(self, sha256: str) -> str:
        return f"{self.folder}/{sha256[:2]}/{sha256[2:]}"


def seal_of(path: Path) -> str:
    """Return the seal of a file that is here; empty if it has none."""
    try:
        return os.getxattr(path, _SEAL).decode("ascii", "replace")
    except (OSError, AttributeError):  # the disk or the system has no extended attributes
        return ""


def unseal(path: Path) -> None:
    """Remove the seal of a file, because it is not the file's."""
    with suppress(OSError, AttributeError):
        os.removexattr(path, _SEAL)


def check_room(folder: Path, size_bytes: int) -> None:
    """Raises OSError if the disk of this folder has less room: others write there as well."""
    if shutil.disk_usage(folder).free < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def explaining_full_disk() -> Iterator[None]:
    """Turn the system's error about a full disk into one for users."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        message = "the master's disk has no room for this file"
        raise LooplineError("disk_full", message, "free some space on it, then try again", status=507) from error
