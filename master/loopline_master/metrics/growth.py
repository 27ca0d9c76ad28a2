"""Size and growth of the database, its event log and the folder of files."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loopline_master.store import Store
from loopline_master.timings import GROWTH_EVERY_S
from loopline_shared.rest.bodies import Sizes

_DAY_S = 86400.0
_KEPT = round(_DAY_S / GROWTH_EVERY_S)


@dataclass(frozen=True, slots=True)
class _Measured:
    at: float
    stored_bytes: int  # database and files
    log_bytes: int


class Growth:
    """Measures sizes when asked, and every ``GROWTH_EVERY_S`` to tell how they grow: a walk through all files."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._files_bytes = 0
        self._past: deque[_Measured] = deque(maxlen=_KEPT)

    async def run(self) -> None:
        """Measure regularly, for ever."""
        while True:
            self._files_bytes = await asyncio.to_thread(_bytes_below, self._folder / "files")
            sizes = await self.sizes()
            stored = sizes.database_bytes + sizes.files_bytes
            self._past.append(_Measured(time.time(), stored, sizes.log_bytes))
            await asyncio.sleep(GROWTH_EVERY_S)

    async def sizes(self) -> Sizes:
        """Return the sizes now, those of files as of the last walk."""
        database = await self._store.size()
        return Sizes(
            database_bytes=database.total_bytes,
            files_bytes=self._files_bytes,
            disk_free_bytes=shutil.disk_usage(self._folder).free,
            log_entries=database.log_entries,
            log_began_at=database.log_began_at,
            log_bytes=self._store.log_bytes,
            stored_a_day=self._a_day(lambda one: one.stored_bytes),
            log_a_day=self._a_day(lambda one: one.log_bytes),
        )

    def _a_day(self, of: Callable[[_Measured], int]) -> float | None:
        """Return the growth of a day, at the rate of the last one or since the start; None: too early to say."""
        if len(self._past) < 2:
            return None
        first, last = self._past[0], self._past[-1]
        return (of(last) - of(first)) / (last.at - first.at) * _DAY_S


def _bytes_below(folder: str | Path) -> int:
    """Return the bytes of all files below a folder; files that disappear during the walk do not count."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                is_folder = entry.is_dir(follow_symlinks=False)
                total += _bytes_below(entry.path) if is_folder else entry.stat(follow_symlinks=False).st_size
    return total
