"""The cache of input files by content; the least recently used are removed when it is full.

A file is checked when it arrives, and again before it is used, unless its *stamp* is unchanged since the last check.
The stamp contains the time of the inode's last change, which no task can set: a change by a task that has a hard link
to the file (hard_links.py) shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

from loopline_worker.files.downloads import Downloads

log = logging.getLogger(__name__)

_PART_OLD_AFTER_S = 86400.0
_Stamp = tuple[int, int, int, int]


class Cache:
    """Files at ``<folder>/<sha256>``, read-only; incomplete ones in ``<folder>/incoming`` survive a restart."""

    def __init__(self, folder: Path, limit_bytes: int, downloads: Downloads) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._limit_bytes = limit_bytes
        self._downloads = downloads
        self._known: dict[str, _Stamp] = {}
        self._held: Counter[str] = Counter()
        self._downloading: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()
        """Held while a file's status is changed, though not its content."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        _clear(self._incoming, time.time() - _PART_OLD_AFTER_S)
        self._sizes = _by_last_use(folder)
        self.others_bytes = 0
        """Size of the environments, which the limit includes."""
        self.version = 0
        """A number that changes when a file comes or goes."""
        self.spoiled: set[str] = set()
        """Files that were found changed here since the agent started."""

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(self._sizes.values())

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of each file; the least recently used come first."""
        return self._sizes

    def path(self, sha256: str) -> Path:
        """Return the place of a file, which need not be there."""
        return self._folder / sha256

    @asynccontextmanager
    async def hold(self, sha256: str, size_bytes: int | None = None) -> AsyncIterator[Path]:
        """Have a checked file and keep it while the context lasts; its size may be unknown.

        Raises DownloadError or OSError.
        """
        self._held[sha256] += 1
        try:
            if not await self.is_sound(sha256):
                await self._download(sha256, size_bytes)
            await asyncio.to_thread(self.change, sha256, lambda: _use(self.path(sha256)))
            self._sizes[sha256] = self._sizes.pop(sha256, 0)  # the last one used
            yield self.path(sha256)
        finally:
            self._held[sha256] -= 1
            if not self._held[sha256]:
                del self._held[sha256]
            self.keep_to_limit()

    def adopt(self, sha256: str, file: Path) -> None:
        """Have a file of that content here as well, as a hard link, if it fits. Raises OSError for the disk."""
        size_bytes = file.stat().st_size
        if sha256 in self._sizes or size_bytes > self._limit_bytes:
            return
        os.link(file, self.path(sha256))
        self._sizes[sha256] = size_bytes
        self.version += 1
        self.keep_to_limit()

    async def is_sound(self, sha256: str, check: Callable[[Path], bool] | None = None) -> bool:
        """True if the cached file exists and its hash matches its name; a mismatching file is removed.

        ``check`` finds it out in another way, in a thread, if the file has to be read for that.
        """
        stamp = await asyncio.to_thread(self._sound_stamp, sha256, check or (lambda path: hash_of(path) == sha256))
        if stamp:
            self._known[sha256] = stamp
        elif sha256 in self._sizes:
            log.warning("the cached file %s was changed: it is fetched again when it is needed", sha256)
            self.spoiled.add(sha256)
            self._remove(sha256)
        return stamp is not None

    def change(self, sha256: str, act: Callable[[], object]) -> None:
        """Do something that changes a file's stamp, not its content. Raises FileNotFoundError if it is gone."""
        path = self.path(sha256)
        with self._lock:
            is_known = self._known.get(sha256) == _stamp(path)
            act()
            if is_known:
                self._known[sha256] = _stamp(path)

    def keep_to_limit(self) -> None:
        """Remove what is over the limit."""
        self.make_room(self.size_bytes + self.others_bytes - self._limit_bytes)

    def make_room(self, wanted_bytes: int) -> None:
        """Remove unused files, least recently used first, until ``wanted_bytes`` are free."""
        if wanted_bytes <= 0:
            return
        for sha256 in [name for name in self._sizes if name not in self._held]:
            if wanted_bytes <= 0:
                return
            wanted_bytes -= self._sizes[sha256]
            self._remove(sha256)

    def _sound_stamp(self, sha256: str, check: Callable[[Path], bool]) -> _Stamp | None:
        """Return the stamp of a file whose content is right, taken before it was read; None otherwise."""
        path = self.path(sha256)
        try:
            stamp = _stamp(path)
            is_sound = self._known.get(sha256) == stamp or check(path)
        except OSError:
            return None
        return stamp if is_sound else None

    def _remove(self, sha256: str) -> None:
        self.version += 1
        self._sizes.pop(sha256, None)
        self._known.pop(sha256, None)
        leaving = self._incoming / f"{uuid4().hex}.leaving"
        with suppress(OSError):
            self.path(sha256).replace(leaving)
            asyncio.get_running_loop().run_in_executor(None, leaving.unlink)  # which takes long for a large file

    async def _download(self, sha256: str, size_bytes: int | None) -> None:
        """Download a file once for all waiting tasks; cancel the download when none is left."""
        while (download := self._downloading.get(sha256)) and download.cancelling():
            await asyncio.wait([download])
        if download is None:
            download = self._downloading[sha256] = asyncio.create_task(self._fetch(sha256, size_bytes))
            download.add_done_callback(lambda _: self._downloading.pop(sha256, None))
        self._waiting[sha256] += 1
        try:
            await asyncio.shield(download)
        finally:
            self._waiting[sha256] -= 1
            if not self._waiting[sha256]:
                del self._waiting[sha256]
                download.cancel()

    async def _fetch(self, sha256: str, size_bytes: int | None) -> None:
        part, path = self._incoming / sha256, self.path(sha256)
        await self._downloads.fetch(sha256, part, size_bytes)
        part.chmod(0o444)
        part.replace(path)
        self._known[sha256] = _stamp(path)
        self._sizes[sha256] = path.stat().st_size
        self.version += 1


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _use(path: Path) -> None:
    path.chmod(0o444)  # a task with a hard link to it may have changed its mode
    os.utime(path)


def _by_last_use(folder: Path) -> OrderedDict[str, int]:
    found = sorted(
        (file.stat().st_mtime, file.name, file.stat().st_size) for file in folder.iterdir() if file.is_file()
    )
    return OrderedDict((name, size_bytes) for _, name, size_bytes in found)


def _clear(folder: Path, before: float) -> None:
    for part in folder.iterdir():
        if part.suffix or part.stat().st_mtime < before:
            part.unlink(missing_ok=True)


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
