"""Files named by the SHA-256 of their content, and their way to where they are kept (file_store.py).

An upload is written to ``incoming``, under the name that the file will have: an interrupted upload can be resumed,
even after a crash of the master. A file is kept completely or not at all. One that is about to be named by a row is
*retained*, and retention (retention.py) deletes no young file. Its BLAKE3 checksum is an extended attribute, which
is written before the file gets its name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from loopline_master.files.file_store import INCOMING, FileStore, check_room, explaining_full_disk
from loopline_shared.checksums import ContentDigests
from loopline_shared.disk.durable_files import make_folder
from loopline_shared.errors import LooplineError
from loopline_shared.model import Output
from loopline_shared.rest.direct import LEAST_BYTES, DirectUpload

log = logging.getLogger(__name__)

_BLOCK_BYTES = 2**20
_TOLD_EVERY_S = 60.0
_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a file that an upload brings: from ``start`` to the end; ``total`` is the length of the whole
    file.
    """

    start: int = 0
    total: int | None = None


WHOLE = Span()


class Blobs:
    """The files, in their store, and uploads under way: ``<folder>/incoming/abcdef...``."""

    def __init__(
        self, store: FileStore, max_file_bytes: int, disk_reserve_bytes: int, max_unfinished: int = 1000
    ) -> None:
        self.store = store
        self._incoming = store.folder / INCOMING
        self._max_file_bytes = max_file_bytes
        self._disk_reserve_bytes = disk_reserve_bytes
        self._max_unfinished = max_unfinished
        self._writing: set[str] = set()
        self._told_at = -_TOLD_EVERY_S  # that there is no room
        make_folder(self._incoming)
        for part in self._incoming.iterdir():
            if len(part.name) != _NAME_CHARACTERS:  # only the connection that sent it could have resumed it
                part.unlink(missing_ok=True)
        self.clear_unfinished()

    def find(self, sha256: str) -> Path | None:
        """Return the path of a file on this computer; None if it is not kept."""
        return self.store.find(sha256)

    async def path(self, sha256: str) -> Path | None:
        """Find a file without holding up the event loop; in a folder a thread would cost more than the answer."""
        return self.find(sha256) if self.store.is_near else await asyncio.to_thread(self.find, sha256)

    def retain(self, sha256: str) -> int | None:
        """Retain a file that is about to be named, and return its size; None if it is not kept."""
        return self.store.retain(sha256)

    async def direct_url(self, sha256: str) -> str | None:
        """Return an address to fetch a large file from past the master; None if it cannot be."""
        if self.store.is_near or (await asyncio.to_thread(self.retain, sha256) or 0) < LEAST_BYTES:
            return None
        return self.store.direct_url(sha256)

    def direct_upload(self, sha256: str, size_bytes: int) -> DirectUpload | None:
        """Return where to send a large file past the master; None if it cannot be."""
        is_large = LEAST_BYTES <= size_bytes <= self._max_file_bytes
        return self.store.direct_upload(sha256, size_bytes) if is_large else None

    def read(self, output: Output, most_bytes: int) -> bytes:
        """Return the beginning of an attempt's output; empty if its file is gone."""
        path = self.find(output.sha256) if output.sha256 else None
        if path is None:
            return output.data[:most_bytes]
        with path.open("rb") as file:
            return file.read(most_bytes)

    def write(self, content: bytes) -> str:
        """Store content that the master made itself; return the file's name once it is on disk."""
        digests = ContentDigests()
        digests.update(content)
        if self.retain(digests.sha256) is None:
            part = self._incoming / f"{digests.sha256}.{uuid4().hex}"
            with explaining_full_disk(), part.open("xb") as file:
                file.write(content)
                self.store.keep(file, part, digests.sha256, digests.blake3)
        return digests.sha256

    def unfinished_bytes(self, sha256: str) -> int:
        """Return how many bytes of an interrupted upload are here; 0 if none can be resumed."""
        try:
            return 0 if sha256 in self._writing else (self._incoming / sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def unfinished(self, before: float) -> list[Path]:
        """Return the uploads that were last written to before this time."""
        parts = [part for part in self._incoming.iterdir() if part.name not in self._writing]
        return [part for part in parts if _changed_at(part) < before]

    def clear_unfinished(self) -> None:
        """Delete the oldest unfinished uploads, if there are more than the limit."""
        parts = sorted(self.unfinished(time.time()), key=_changed_at)
        for part in parts[: max(0, len(parts) - self._max_unfinished)]:
            part.unlink(missing_ok=True)

    async def put(
        self, sha256: str, content: AsyncIterable[bytes], announced_bytes: int = 0, span: Span = WHOLE
    ) -> bool:
        """Store uploaded content; it is on disk on return. Returns False if it was here already.

        An interrupted upload can be resumed by a ``span``, unless another client is uploading the same file now.
        """
        self._check(span.total or announced_bytes)
        if await asyncio.to_thread(self.retain, sha256) is not None:
            async for _ in content:  # a client whose upload is cut off would report a failure
                pass
            return False
        with self._part(sha256, span) as part, explaining_full_disk():
            await self._take_in(sha256, content, part, span.start)
        return True

    async def _take_in(self, sha256: str, content: AsyncIterable[bytes], part: Path, start: int) -> None:
        with part.open("r+b" if start else "wb") as file:
            digests = await asyncio.to_thread(_resume, file, start)
            try:
                await self._write(file, digests, content, start)
            except (LooplineError, OSError) as error:
                if not isinstance(error, ConnectionError):  # it need not be resumed
                    part.unlink(missing_ok=True)
                raise
            if digests.sha256 != sha256:
                part.unlink(missing_ok=True)
                message = f"this content has the SHA-256 {digests.sha256}, not {sha256}"
                raise LooplineError("wrong_hash", message, "upload it under its own SHA-256", status=422)
            await asyncio.to_thread(self.store.keep, file, part, sha256, digests.blake3)

    @contextmanager
    def _part(self, sha256: str, span: Span) -> Iterator[Path]:
        """Yield the file to write to: one upload of a file at a time can be resumed, others are written apart."""
        part = self._incoming / sha256
        if sha256 in self._writing:
            if span.start:
                raise _cannot_resume_there(sha256, 0)
            part = part.with_name(f"{sha256}.{uuid4().hex}")
            try:
                yield part
            finally:
                part.unlink(missing_ok=True)
            return
        if span.start > self.unfinished_bytes(sha256):
            raise _cannot_resume_there(sha256, self.unfinished_bytes(sha256))
        self._writing.add(sha256)
        try:
            yield part
        finally:
            self._writing.discard(sha256)

    async def _write(
        self, file: IO[bytes], digests: ContentDigests, content: AsyncIterable[bytes], start: int
    ) -> None:
        """Write the content as it comes, within the limits."""
        size_bytes = start
        async for piece in content:
            size_bytes += len(piece)
            self._check(size_bytes)
            await asyncio.to_thread(self._append_if_room, file, digests, piece)

    def _append_if_room(self, file: IO[bytes], digests: ContentDigests, piece: bytes) -> None:
        """Write a piece if the disk has room for it, which is asked every time because others write as well."""
        try:
            check_room(self._incoming, self._disk_reserve_bytes + len(piece))
        except OSError:
            self._tell_of_full_disk()
            raise
        _append(file, digests, piece)

    def _tell_of_full_disk(self) -> None:
        """Warn the operator now and then, for results wait on their workers until there is room."""
        if time.monotonic() < self._told_at + _TOLD_EVERY_S:
            return
        self._told_at = time.monotonic()
        log.warning("the disk has no room for more files (%s): results wait until it has", self._incoming.parent)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._max_file_bytes:
            message = f"files may have at most {self._max_file_bytes:,} bytes here"
            raise LooplineError("too_large", message, "raise limits.max_file_bytes of the master", status=413)


def _cannot_resume_there(sha256: str, offset: int) -> LooplineError:
    message = f"the upload of {sha256} resumes at byte {offset}"
    return LooplineError("upload_offset", message, "HEAD answers with that byte in Upload-Offset", status=409)


def _changed_at(part: Path) -> float:
    try:
        return part.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _resume(file: IO[bytes], start: int) -> ContentDigests:
    """Move to the place where writing resumes, and hash the bytes before it."""
    digests, left = ContentDigests(), start
    while left and (piece := file.read(min(left, _BLOCK_BYTES))):
        digests.update(piece)
        left -= len(piece)
    file.truncate(start)
    file.seek(start)
    return digests


def _append(file: IO[bytes], digests: ContentDigests, piece: bytes) -> None:
    digests.update(piece)
    file.write(piece)
    file.flush()  # can be resumed even if this process is killed
