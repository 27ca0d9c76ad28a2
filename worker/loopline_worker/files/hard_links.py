"""Hard links to cached files in place of copies of large inputs, read-only, detached when the task ends.

All tasks with a link to a file share it, and it stays in the cache while they do. A change by one of them may have
been read by the others. The cache finds out when a link is detached: then none of those tasks counts, and later tasks
that need the file on this computer get a copy.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path, PurePosixPath

from loopline_shared.model import InputFile
from loopline_worker.files import confined_paths
from loopline_worker.files.cache import Cache

LINKED_FROM_BYTES = 64 * 2**20


class HardLinks:
    """The hard links of one attempt, by their paths in its scratch folder."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache
        self._linked: dict[str, str] = {}
        self._held = AsyncExitStack()

    @asynccontextmanager
    async def hold(self, path: str, file: InputFile) -> AsyncIterator[Path]:
        """Keep the cached file while it is staged; until ``detach`` if it is linked."""
        async with AsyncExitStack() as held:
            source = await held.enter_async_context(self._cache.hold(file.sha256, file.size_bytes))
            try:
                yield source
            finally:
                if path in self._linked:
                    self._held.push_async_callback(held.pop_all().aclose)

    def link(self, path: str, file: InputFile, source: Path, target: str, handle: int | None) -> bool:
        """Link a file into the scratch folder. False if it has to be copied."""
        if not self._is_linkable(file, source):
            return False
        with suppress(OSError):  # the file system has no hard links, or this file too many
            self._cache.change(file.sha256, lambda: os.link(source, target, dst_dir_fd=handle))
            self._linked[path] = file.sha256
            return True
        return False

    async def detach(self) -> list[str]:
        """Remove the links and return the paths of files that were changed. A second call does nothing."""
        changed = []
        for path, sha256 in self._linked.items():
            with suppress(OSError):  # the file has left the cache
                await asyncio.to_thread(self._cache.change, sha256, self._unlinking(path, sha256))
            if not await self._cache.is_sound(sha256) or sha256 in self._cache.spoiled:
                changed.append(path)
        self._linked = {}
        await self._held.aclose()
        return changed

    def _is_linkable(self, file: InputFile, source: Path) -> bool:
        """True for a large file; an executable one needs another mode than the cached one has."""
        if sys.platform == "win32" or file.executable or file.sha256 in self._cache.spoiled:
            return False
        return source.stat().st_size >= LINKED_FROM_BYTES

    def _unlinking(self, path: str, sha256: str) -> Callable[[], None]:
        *folders, name = PurePosixPath(path).parts

        def unlink() -> None:
            with (
                suppress(OSError),
                confined_paths.folder(self._folder, folders) as handle,
            ):  # it was moved
                target = confined_paths.at(self._folder, (*folders, name), handle)
                status = os.stat(target, dir_fd=handle, follow_symlinks=False)
                if status.st_ino == self._cache.path(sha256).stat().st_ino:
                    os.unlink(target, dir_fd=handle)

        return unlink
