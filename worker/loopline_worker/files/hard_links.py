"""Large input files that are lent to a task: hard links to what the cache has, read-only, taken back at its end.

All tasks that are lent a file have the same one, which stays in the cache meanwhile. What one of them does to it the
others may have read. The cache finds out when it is taken back: none of those tasks counts then, and whoever needs
the file on this computer again gets a copy.
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

LENT_FROM_BYTES = 64 * 2**20


class Loans:
    """Those of one attempt, by where they are in its scratch folder."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache
        self._lent: dict[str, str] = {}
        self._held = AsyncExitStack()

    @asynccontextmanager
    async def hold(self, path: str, sha256: str) -> AsyncIterator[Path]:
        """The cached file, while it is put there; for longer if it is lent."""
        async with AsyncExitStack() as held:
            source = await held.enter_async_context(self._cache.hold(sha256))
            try:
                yield source
            finally:
                if path in self._lent:
                    self._held.push_async_callback(held.pop_all().aclose)

    def lend(self, path: str, file: InputFile, source: Path, target: str, handle: int | None) -> bool:
        """False: it cannot be, and is to be copied."""
        if not self._is_lendable(file, source):
            return False
        with suppress(OSError):  # no hard links there, or too many of this one
            self._cache.change(file.sha256, lambda: os.link(source, target, dst_dir_fd=handle))
            self._lent[path] = file.sha256
            return True
        return False

    async def take_back(self) -> list[str]:
        """Those that are not what they were. Nothing to do the second time."""
        changed = []
        for path, sha256 in self._lent.items():
            with suppress(OSError):  # it is not in the cache any more
                await asyncio.to_thread(self._cache.change, sha256, self._unlinking(path, sha256))
            if not await self._cache.is_sound(sha256) or sha256 in self._cache.spoiled:
                changed.append(path)
        self._lent = {}
        await self._held.aclose()
        return changed

    def _is_lendable(self, file: InputFile, source: Path) -> bool:
        """One that is executed needs another mode than the cached one."""
        if sys.platform == "win32" or file.executable or file.sha256 in self._cache.spoiled:
            return False
        return source.stat().st_size >= LENT_FROM_BYTES

    def _unlinking(self, path: str, sha256: str) -> Callable[[], None]:
        *folders, name = PurePosixPath(path).parts

        def unlink() -> None:
            with suppress(OSError), confined_paths.folder(self._folder, folders) as handle:  # the task has moved it
                target = confined_paths.at(self._folder, (*folders, name), handle)
                status = os.stat(target, dir_fd=handle, follow_symlinks=False)
                if status.st_ino == self._cache.path(sha256).stat().st_ino:
                    os.unlink(target, dir_fd=handle)

        return unlink
