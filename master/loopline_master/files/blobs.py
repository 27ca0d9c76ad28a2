"""Files named by their content (SHA-256), on the master's disk. A file is there whole, or not at all.

What is on its way in is in ``incoming``, under the name that it will have: an upload that breaks off, even by the
death of the master, can be gone on with. A file that is about to be named is *kept*: its time is set to now, and
collecting (retention.py) leaves young files alone. Its BLAKE3 checksum (checksums.py) is an extended attribute of the
file, put there before the file has its name.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from loopline_shared.checksums import ContentDigests
from loopline_shared.errors import LooplineError
from loopline_shared.model import Output

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BLOCK_BYTES = 2**20
_NAME_CHARACTERS = 64
_SEAL = "user.loopline.seal"
_KEPT_FOR_S = 0.1
"""What was kept so lately is not kept again: jobs of one function come by the hundred a second."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of a file an upload brings: from ``start`` to its end, ``total`` being its whole length."""

    start: int = 0
    total: int | None = None


WHOLE = Span()


class Blobs:
    """``<folder>/ab/cdef...``, and ``<folder>/incoming/abcdef...``."""

    def __init__(
        self, folder: Path, max_file_bytes: int, disk_reserve_bytes: int, max_unfinished: int = 1000
    ) -> None:
        self.folder = folder
        self._incoming = folder / "incoming"
        self._max_file_bytes = max_file_bytes
        self._disk_reserve_bytes = disk_reserve_bytes
        self._max_unfinished = max_unfinished
        self._writing: set[str] = set()
        self._lock = threading.Lock()
        """Held where a file is kept or removed: one that is kept is there, and stays for a while."""
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in self._incoming.iterdir():
            if len(part.name) != _NAME_CHARACTERS:  # only its own sender could have gone on with it
                part.unlink(missing_ok=True)
        self.clear_unfinished()

    def find(self, sha256: str) -> Path | None:
        """Where the content is, if it is here."""
        path = self._path(sha256)
        return path if path.is_file() else None

    def keep(self, sha256: str) -> int | None:
        """The size of what is about to be named, which will be here for long enough; None: it is not here."""
        path = self._path(sha256)
        with self._lock, suppress(FileNotFoundError):
            found = path.stat()
            if found.st_mtime < time.time() - _KEPT_FOR_S:
                os.utime(path)
            return found.st_size
        return None

    def remove(self, sha256: str, before: float) -> bool:
        """Unless somebody has kept it since; whether it is gone."""
        path = self._path(sha256)
        with self._lock, suppress(FileNotFoundError):
            if path.stat().st_mtime < before - _KEPT_FOR_S:
                path.unlink()
                return True
        return False

    def seal(self, path: Path) -> str:
        """Of a file that is here; empty: it has none."""
        try:
            return os.getxattr(path, _SEAL).decode("ascii", "replace")
        except (OSError, AttributeError):  # of a disk, or a system, that keeps no such thing
            return ""

    def read(self, output: Output, most_bytes: int) -> bytes:
        """The beginning of what an attempt wrote; empty where it is gone."""
        path = self.find(output.sha256) if output.sha256 else None
        if path is None:
            return output.data[:most_bytes]
        with path.open("rb") as file:
            return file.read(most_bytes)

    def write(self, content: bytes) -> str:
        """Take in content of the master's own; the name of the file, which is on disk on return."""
        digests = ContentDigests()
        digests.update(content)
        if self.keep(digests.sha256) is None:
            part = self._incoming / f"{digests.sha256}.{uuid4().hex}"
            with _told_when_full(), part.open("xb") as file:
                file.write(content)
                _settle(file, part, self._path(digests.sha256), digests.blake3)
        return digests.sha256

    def unfinished_bytes(self, sha256: str) -> int:
        """How much of it has come in; 0: nothing that could be gone on with."""
        try:
            return 0 if sha256 in self._writing else (self._incoming / sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def unfinished(self, before: float) -> list[Path]:
        """Uploads that nobody has gone on with since."""
        parts = [part for part in self._incoming.iterdir() if part.name not in self._writing]
        return [part for part in parts if _changed_at(part) < before]

    def clear_unfinished(self) -> None:
        """Only so many are kept: the youngest."""
        parts = sorted(self.unfinished(time.time()), key=_changed_at)
        for part in parts[: max(0, len(parts) - self._max_unfinished)]:
            part.unlink(missing_ok=True)

    async def put(
        self, sha256: str, content: AsyncIterable[bytes], announced_bytes: int = 0, span: Span = WHOLE
    ) -> bool:
        """Take content in: it is on disk when this returns. False: it was here already.

        What breaks off can be gone on with, by a ``span``; unless somebody else is bringing the same meanwhile.
        """
        self._check(span.total or announced_bytes)
        if await asyncio.to_thread(self.keep, sha256) is not None:
            async for _ in content:  # a sender that is cut off takes that for a failure
                pass
            return False
        with self._part(sha256, span) as part, _told_when_full():
            await self._take_in(sha256, content, part, span.start)
        return True

    async def _take_in(self, sha256: str, content: AsyncIterable[bytes], part: Path, start: int) -> None:
        with part.open("r+b" if start else "wb") as file:
            digests = await asyncio.to_thread(_resume, file, start)
            try:
                await self._write(file, digests, content, start)
            except (LooplineError, OSError) as error:
                if not isinstance(error, ConnectionError):  # nobody need go on with it
                    part.unlink(missing_ok=True)
                raise
            if digests.sha256 != sha256:
                part.unlink(missing_ok=True)
                message = f"this content has the SHA-256 {digests.sha256}, not {sha256}"
                raise LooplineError("wrong_hash", message, "put it under the name of its content", status=422)
            await asyncio.to_thread(_settle, file, part, self._path(sha256), digests.blake3)

    @contextmanager
    def _part(self, sha256: str, span: Span) -> Iterator[Path]:
        """Where to write: one sender at a time may be gone on with, any others begin and end alone."""
        part = self._incoming / sha256
        if sha256 in self._writing:
            if span.start:
                raise _elsewhere(sha256, 0)
            part = part.with_name(f"{sha256}.{uuid4().hex}")
            try:
                yield part
            finally:
                part.unlink(missing_ok=True)
            return
        if span.start > self.unfinished_bytes(sha256):
            raise _elsewhere(sha256, self.unfinished_bytes(sha256))
        self._writing.add(sha256)
        try:
            yield part
        finally:
            self._writing.discard(sha256)

    async def _write(
        self, file: IO[bytes], digests: ContentDigests, content: AsyncIterable[bytes], start: int
    ) -> None:
        """Write what comes, within the limits."""
        size_bytes = start
        async for piece in content:
            size_bytes += len(piece)
            self._check(size_bytes)
            await asyncio.to_thread(self._take, file, digests, piece)

    def _take(self, file: IO[bytes], digests: ContentDigests, piece: bytes) -> None:
        """While there is room, which is seen every time: others write as well."""
        if shutil.disk_usage(self.folder).free < self._disk_reserve_bytes + len(piece):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _take(file, digests, piece)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._max_file_bytes:
            message = f"files may have at most {self._max_file_bytes:,} bytes here"
            raise LooplineError("too_large", message, "raise limits.max_file_bytes of the master", status=413)

    def _path(self, sha256: str) -> Path:
        return Path(f"{self.folder}/{sha256[:2]}/{sha256[2:]}")


def _elsewhere(sha256: str, offset: int) -> LooplineError:
    message = f"the upload of {sha256} goes on at byte {offset}"
    return LooplineError("upload_offset", message, "ask where with HEAD, which says Upload-Offset", status=409)


def _changed_at(part: Path) -> float:
    try:
        return part.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _told_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        message = "the master's disk has no room for this file"
        raise LooplineError("disk_full", message, "free some space on it, then try again", status=507) from error


def _resume(file: IO[bytes], start: int) -> ContentDigests:
    """To where writing goes on; told of what is before."""
    digests, left = ContentDigests(), start
    while left and (piece := file.read(min(left, _BLOCK_BYTES))):
        digests.update(piece)
        left -= len(piece)
    file.truncate(start)
    file.seek(start)
    return digests


def _take(file: IO[bytes], digests: ContentDigests, piece: bytes) -> None:
    digests.update(piece)
    file.write(piece)
    file.flush()  # what has come is gone on with, even where this process is killed


def _settle(file: IO[bytes], part: Path, path: Path, seal: str) -> None:
    """Give a finished file its checksum and its name, so that a power cut keeps all or nothing."""
    file.flush()
    if seal:
        with suppress(OSError, AttributeError):  # not every disk, or system, keeps such a thing
            os.setxattr(file.fileno(), _SEAL, seal.encode())
    os.fsync(file.fileno())
    path.parent.mkdir(mode=0o700, exist_ok=True)
    os.utime(file.fileno() if os.utime in os.supports_fd else part)
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
