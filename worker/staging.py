"""Input files from the cache into a task's scratch folder, before it starts.

Each is the task's own copy, which it may change: cloned where the file system can, else copied. A large one that
cannot be cloned is lent instead: a hard link, read-only, looked after when the task has ended.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from shared import manifest
from shared.model import InputFile, Outcome
from shared.protocol.messages import Run
from worker import inside
from worker.cache import Cache
from worker.downloads import DownloadError

log = logging.getLogger(__name__)

LENT_FROM_BYTES = 64 * 2**20
_AT_ONCE = 4
_PART_BYTES = 2**24
_CLONE = 0x40049409  # the ioctl FICLONE
_NO_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


class StagingError(Exception):
    """A task's inputs cannot be had; ``outcome`` is its attempt's."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Inputs:
    """Those of one attempt."""

    def __init__(self, run: Run, folder: Path, cache: Cache, limit_bytes: int | None) -> None:
        self._run = run
        self._folder = folder
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._lent: dict[str, str] = {}
        self._is_unwanted = False
        self.files: Mapping[str, InputFile] = {}
        """By where they are in the scratch folder."""

    async def bring_in(self) -> None:
        """StagingError, or OSError where this computer cannot."""
        if not self._run.inputs and not self._run.own_inputs:
            return
        try:
            self.files = {**await self._listed(), **self._run.own_inputs}
            self._check_size()
            await self._place_all()
        except DownloadError as error:
            outcome = Outcome.FAILED if error.is_gone else Outcome.GIVEN_BACK
            raise StagingError(outcome, f"its inputs cannot be had: {error}") from None

    async def clear_up(self) -> None:
        """When the task has ended: take back what was lent, and see that it is as it was."""
        for path, sha256 in self._lent.items():
            await asyncio.to_thread(self._cache.change, sha256, self._unlinking(path, sha256))
            await self._cache.is_sound(sha256)
        self._lent = {}

    async def _listed(self) -> dict[str, InputFile]:
        if not self._run.inputs:
            return {}
        async with self._cache.hold(self._run.inputs) as path:
            try:
                return await asyncio.to_thread(lambda: manifest.decode(path.read_bytes()))
            except ValueError as error:
                raise StagingError(Outcome.FAILED, f"the list of its inputs makes no sense: {error}") from None

    def _check_size(self) -> None:
        size_bytes = sum(file.size_bytes or 0 for file in self.files.values())
        if self._limit_bytes is not None and size_bytes > self._limit_bytes:
            limit = f"{self._limit_bytes:,} (scratch_limit_bytes of this worker)"
            raise StagingError(Outcome.FAILED, f"its inputs come to {size_bytes:,} bytes, the limit is {limit}")

    async def _place_all(self) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)
        self._lent = {}

        async def place(path: str, file: InputFile) -> None:
            async with turn, self._cache.hold(file.sha256) as source:
                await self._to_its_end(asyncio.to_thread(self._place, path, file, source))

        try:
            async with asyncio.TaskGroup() as group:
                for path, file in self.files.items():
                    group.create_task(place(path, file))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        """A thread goes on where nobody waits for it, and would write into a folder that is being removed."""
        working = asyncio.create_task(work)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_unwanted = True
            await asyncio.wait([working])
            raise

    def _place(self, path: str, file: InputFile, source: Path) -> None:
        try:
            self._put(path, file, source)
        except (FileExistsError, NotADirectoryError):  # where A and a are one
            raise StagingError(Outcome.FAILED, f"its input {path} is in the way of another one here") from None

    def _put(self, path: str, file: InputFile, source: Path) -> None:
        *folders, name = PurePosixPath(path).parts
        with inside.folder(self._folder, folders, make=True) as handle:
            target = inside.at(self._folder, (*folders, name), handle)
            if _clone(source, target, handle, file.executable):
                return
            if self._is_lent(file, source):
                with suppress(OSError):  # no hard links there, or too many of this one
                    self._cache.change(file.sha256, lambda: os.link(source, target, dst_dir_fd=handle))
                    self._lent[path] = file.sha256
                    return
            self._copy(source, target, handle, file.executable)

    def _copy(self, source: Path, target: str, handle: int | None, executable: bool) -> None:
        with source.open("rb") as original, os.fdopen(_new(target, handle, executable), "wb", 0) as copy:
            if sys.platform == "linux":
                with suppress(OSError):  # not on every file system: what is left is copied by hand
                    while not self._is_unwanted and os.copy_file_range(original.fileno(), copy.fileno(), _PART_BYTES):
                        pass
            while not self._is_unwanted and (part := original.read(_PART_BYTES)):
                copy.write(part)

    def _is_lent(self, file: InputFile, source: Path) -> bool:
        """One that is executed needs another mode than the cached one."""
        return sys.platform != "win32" and not file.executable and source.stat().st_size >= LENT_FROM_BYTES

    def _unlinking(self, path: str, sha256: str) -> Callable[[], None]:
        *folders, name = PurePosixPath(path).parts

        def unlink() -> None:
            with suppress(OSError), inside.folder(self._folder, folders) as handle:  # the task has moved it
                target = inside.at(self._folder, (*folders, name), handle)
                status = os.stat(target, dir_fd=handle, follow_symlinks=False)
                if status.st_ino == self._cache.path(sha256).stat().st_ino:
                    os.unlink(target, dir_fd=handle)

        return unlink


def _new(target: str, handle: int | None, executable: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.open(target, flags, 0o755 if executable else 0o644, dir_fd=handle)


def _clone(source: Path, target: str, handle: int | None, executable: bool) -> bool:
    """A copy that shares its blocks with the original until either is written to; False: there is no such thing."""
    if sys.platform != "linux":
        return False
    import fcntl

    with source.open("rb") as original:
        copy = _new(target, handle, executable)
        try:
            fcntl.ioctl(copy, _CLONE, original.fileno())
        except OSError as error:
            os.unlink(target, dir_fd=handle)
            if error.errno not in _NO_CLONE:
                raise
            return False
        finally:
            os.close(copy)
    return True
