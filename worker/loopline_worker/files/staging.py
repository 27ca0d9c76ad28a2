"""Staging: input files come from the cache into a task's scratch folder, before it starts.

Each becomes the task's own copy, which it may change: cloned if the file system can, else copied. A large file that
cannot be cloned is hard-linked instead (hard_links.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from loopline_shared import manifest
from loopline_shared.model import InputFile, InputFolder, InputLink, Outcome, StagedInput
from loopline_shared.protocol.worker_link import Run
from loopline_worker.files import confined_paths
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import DownloadError
from loopline_worker.files.hard_links import HardLinks

_AT_ONCE = 4
_PART_BYTES = 2**24
_CLONE = 0x40049409  # the ioctl FICLONE
_NO_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


class StagingError(Exception):
    """A task's inputs cannot be staged, so that its attempt ends with ``outcome``."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Inputs:
    """The inputs of one attempt."""

    def __init__(self, run: Run, folder: Path, cache: Cache, limit_bytes: int | None) -> None:
        self._run = run
        self._folder = folder
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._links = HardLinks(folder, cache)
        self._is_unwanted = False
        self.files: Mapping[str, InputFile] = {}
        """Input files by their paths in the scratch folder."""
        self._others: Mapping[str, InputLink | InputFolder] = {}

    async def stage(self) -> None:
        """Stage all inputs. Raises StagingError, or OSError if this computer cannot."""
        if not self._run.inputs and not self._run.own_inputs:
            return
        try:
            listed = {**await self._listed(), **self._run.own_inputs}
            self.files = {path: one for path, one in listed.items() if isinstance(one, InputFile)}
            self._others = {path: one for path, one in listed.items() if not isinstance(one, InputFile)}
            self._check_size(sum(file.size_bytes or 0 for file in self.files.values()))
            await self._place_all()
            if self._others:  # links last: no file is placed through one
                await self._to_the_end(asyncio.to_thread(self._place_others))
        except DownloadError as error:
            outcome = Outcome.FAILED if error.is_gone else Outcome.GIVEN_BACK
            raise StagingError(outcome, f"its inputs cannot be fetched: {error}") from None

    async def detach(self) -> None:
        """Detach hard-linked inputs when the task has ended. Raises StagingError if a task changed one."""
        if changed := await self._links.detach():
            reason = f"its input {changed[0]}, which tasks share here, was changed by one of them"
            raise StagingError(Outcome.GIVEN_BACK, f"{reason}: the next task that needs it gets a copy")

    async def _listed(self) -> dict[str, StagedInput]:
        if not self._run.inputs:
            return {}
        async with self._cache.hold(self._run.inputs) as path:
            try:
                return await asyncio.to_thread(lambda: manifest.decode(path.read_bytes()))
            except ValueError as error:
                raise StagingError(Outcome.FAILED, f"the list of its inputs is invalid: {error}") from None

    def _check_size(self, size_bytes: int) -> None:
        if self._limit_bytes is not None and size_bytes > self._limit_bytes:
            limit = f"{self._limit_bytes:,} (scratch_limit_bytes of this worker)"
            raise StagingError(Outcome.FAILED, f"its inputs have {size_bytes:,} bytes, the limit is {limit}")

    async def _place_all(self) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)
        size_bytes = 0

        async def place(path: str, file: InputFile) -> None:
            nonlocal size_bytes
            async with turn, self._links.hold(path, file) as source:
                size_bytes += source.stat().st_size  # the size of its own inputs is not in the list
                self._check_size(size_bytes)
                await self._to_the_end(asyncio.to_thread(self._place, path, file, source))

        try:
            async with asyncio.TaskGroup() as group:
                for path, file in self.files.items():
                    group.create_task(place(path, file))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a thread even if cancelled: it would write into a folder that is being removed."""
        working = asyncio.create_task(work)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_unwanted = True
            await asyncio.wait([working])
            raise

    def _place(self, path: str, file: InputFile, source: Path) -> None:
        with _conflicts_named(path):
            self._put(path, file, source)

    def _place_others(self) -> None:
        for path, one in self._others.items():
            *folders, name = PurePosixPath(path).parts
            if isinstance(one, InputFolder):
                folders.append(name)
            with _conflicts_named(path), confined_paths.folder(self._folder, folders, make=True) as handle:
                if isinstance(one, InputLink):
                    os.symlink(one.link, confined_paths.at(self._folder, (*folders, name), handle), dir_fd=handle)

    def _put(self, path: str, file: InputFile, source: Path) -> None:
        *folders, name = PurePosixPath(path).parts
        with confined_paths.folder(self._folder, folders, make=True) as handle:
            target = confined_paths.at(self._folder, (*folders, name), handle)
            if _clone(source, target, handle, file.executable):
                return
            if not self._links.link(path, file, source, target, handle):
                self._copy(source, target, handle, file.executable)

    def _copy(self, source: Path, target: str, handle: int | None, executable: bool) -> None:
        with source.open("rb") as original, os.fdopen(_new(target, handle, executable), "wb", 0) as copy:
            if sys.platform == "linux":
                with suppress(OSError):  # not on every file system: the loop below copies the rest
                    while not self._is_unwanted and os.copy_file_range(original.fileno(), copy.fileno(), _PART_BYTES):
                        pass
            while not self._is_unwanted and (part := original.read(_PART_BYTES)):
                copy.write(part)


@contextmanager
def _conflicts_named(path: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError):  # on a file system where A and a are the same
        reason = f"its input {path} conflicts with another one on this computer"
        raise StagingError(Outcome.FAILED, reason) from None


def _new(target: str, handle: int | None, executable: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.open(target, flags, 0o755 if executable else 0o644, dir_fd=handle)


def _clone(source: Path, target: str, handle: int | None, executable: bool) -> bool:
    """Clone a file: both share their blocks until one of them changes. False if that is impossible."""
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
