"""Files named by their content (SHA-256), on the master's disk. A file is there whole, or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from shared.errors import LooplineError
from shared.model import Output

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Blobs:
    """``<folder>/ab/cdef...``; what is on its way in is under ``<folder>/incoming``, which each start empties."""

    def __init__(self, folder: Path, max_file_bytes: int, disk_reserve_bytes: int) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._max_file_bytes = max_file_bytes
        self._disk_reserve_bytes = disk_reserve_bytes
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(mode=0o700, parents=True)

    def find(self, sha256: str) -> Path | None:
        """Where the content is, if it is here."""
        path = self._path(sha256)
        return path if path.is_file() else None

    def read(self, output: Output, most_bytes: int) -> bytes:
        """The beginning of what an attempt wrote; empty where it is gone."""
        path = self.find(output.sha256) if output.sha256 else None
        if path is None:
            return output.data[:most_bytes]
        with path.open("rb") as file:
            return file.read(most_bytes)

    async def put(self, sha256: str, content: AsyncIterable[bytes], announced_bytes: int = 0) -> bool:
        """Take content in: it is on disk when this returns. False: it was here already."""
        self._check(announced_bytes)
        if self.find(sha256):
            async for _ in content:  # a sender that is cut off takes that for a failure
                pass
            return False
        part = self._incoming / uuid4().hex
        try:
            with _told_when_full(), part.open("xb") as file:
                digest = await self._write(file, content)
                if digest != sha256:
                    message = f"this content has the SHA-256 {digest}, not {sha256}"
                    raise LooplineError("wrong_hash", message, "put it under the name of its content", status=422)
                await asyncio.to_thread(_settle, file, part, self._path(sha256))
        finally:
            part.unlink(missing_ok=True)
        return True

    async def _write(self, file: IO[bytes], content: AsyncIterable[bytes]) -> str:
        """Write what comes, within the limits; its SHA-256."""
        digest, size_bytes = hashlib.sha256(), 0
        room_bytes = shutil.disk_usage(self._folder).free - self._disk_reserve_bytes
        async for piece in content:
            size_bytes += len(piece)
            self._check(size_bytes)
            if size_bytes > room_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            await asyncio.to_thread(_take, file, digest, piece)
        return digest.hexdigest()

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._max_file_bytes:
            message = f"files may have at most {self._max_file_bytes:,} bytes here"
            raise LooplineError("too_large", message, "raise limits.max_file_bytes of the master", status=413)

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256[2:]


@contextmanager
def _told_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        message = "the master's disk has no room for this file"
        raise LooplineError("disk_full", message, "free some space on it, then try again", status=507) from error


def _take(file: IO[bytes], digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)


def _settle(file: IO[bytes], part: Path, path: Path) -> None:
    """Give a finished file its name, so that a power cut keeps both or neither."""
    file.flush()
    os.fsync(file.fileno())
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part.replace(path)
    if os.name == "posix":
        for folder in (path.parent, path.parent.parent):
            _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
