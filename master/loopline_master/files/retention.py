"""Retention: removes files that no row names, and releases the files of jobs that ended long ago.

Mark: all names in the rows of jobs whose files are retained. Sweep: delete the other files, except those younger
than the grace time, which may be about to be named. Both read the rows and the folders in small parts. A job's
files are released in the rows first, so that a crash leaves too many files but never a name without its file.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from loopline_master.files.blobs import Blobs
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.files.user_files import UserFiles
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.store.queries.file_references import CHECKPOINT, Named
from loopline_master.timings import FIRST_PRUNE_AFTER_S, PRUNE_EVERY_S
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import PruneReport

log = logging.getLogger(__name__)

DAY_S = 86400.0
_JOBS_TOLD = 100
_ROW_FILE = re.compile(r'"parameters":\{[^{}\[\]]*"file":"sha256:([0-9a-f]{64})"')
_MANIFEST = re.compile(f"{CHECKPOINT}([0-9a-f]{{64}})")
_NAME_IN_ROWS = re.compile(rb"sha256:([0-9a-f]{64})")
_NAME_IN_MANIFEST = re.compile(rb'"([0-9a-f]{64})"')
_BLOCK_BYTES = 2**20
_OVERLAP_BYTES = len("sha256:") + 64 - 1
_KEY_CHARACTERS = 15
"""Leading characters of a name that are remembered, as a number. Files that share them are retained together."""


@dataclass(slots=True)
class _Marks:
    """The set of files that are named."""

    keys: set[int] = field(default_factory=set)

    def add(self, name: str) -> None:
        """Mark a file."""
        self.keys.add(int(name[:_KEY_CHARACTERS], 16))

    def __contains__(self, name: str) -> bool:
        return int(name[:_KEY_CHARACTERS], 16) in self.keys


class Retention:
    """Deletes files that are no longer needed, regularly and on demand."""

    def __init__(
        self, store: Store, blobs: Blobs, settings: MasterSettings, users: UserFiles, now: RemovalClock
    ) -> None:
        self._store, self._now = store, now
        self._users = users
        self._blobs = blobs
        self._settings = settings
        self._lock = asyncio.Lock()
        self.releasing = asyncio.Lock()
        """Held while files of jobs are released and while a job is retried, so that one comes after the other."""

    async def run(self) -> None:
        """Prune regularly, for ever. A failure is logged, and pruning is tried again."""
        await asyncio.sleep(FIRST_PRUNE_AFTER_S)
        while True:
            try:
                report = await self.prune(self._retention_s(), delete=True)
                if report.files:
                    log.info("removed %d files (%d bytes) that no job needs", report.files, report.bytes)
            except (OSError, LooplineError) as error:
                log.warning("cannot remove files that no job needs: %s", error)
            await asyncio.sleep(PRUNE_EVERY_S)

    async def prune(self, older_than_s: float | None, *, delete: bool, by_hand: bool = False) -> PruneReport:
        """Report which files can be removed, and remove them if ``delete``.

        ``older_than_s``: also release the files of jobs that ended at least that long ago; None: of no job.
        """
        async with self._lock:
            now = time.time() if by_hand else self._now()
            expired = [] if older_than_s is None else await self._store.files.expired(now - older_than_s)
            if delete and expired:
                async with self.releasing:
                    await self._store.files.release(expired, now, _reason(older_than_s or 0.0, by_hand))
            marks = await self._mark(frozenset() if delete else frozenset(expired))
            files, size_bytes = await self._sweep(marks, now - self._settings.file_grace_s, delete)
            uploads, upload_bytes = await asyncio.to_thread(self._clear_uploads, now, delete)
            return PruneReport(
                deleted=delete,
                job_count=len(expired),
                jobs=expired[:_JOBS_TOLD],
                files=files,
                bytes=size_bytes,
                uploads=uploads,
                upload_bytes=upload_bytes,
                older_than_s=older_than_s,
                grace_s=self._settings.file_grace_s,
            )

    def _retention_s(self) -> float | None:
        days = self._settings.retention_days
        return None if days is None else days * DAY_S

    async def _mark(self, without: frozenset[int]) -> _Marks:
        marks = _Marks()
        async for named in self._named(without):
            for found in _ROW_FILE.finditer(named.text):
                await asyncio.to_thread(self._mark_within, marks, found[1], _NAME_IN_ROWS)
            for found in _MANIFEST.finditer(named.text):
                await asyncio.to_thread(self._mark_within, marks, found[1], _NAME_IN_MANIFEST)
            for name in named.names():
                marks.add(name)
        return marks

    def _named(self, without: frozenset[int]) -> AsyncIterator[Named]:
        return self._store.files.named(without, left_since(self._settings, self._now()))

    def _mark_within(self, marks: _Marks, file_name: str, pattern: re.Pattern[bytes]) -> None:
        """Mark the files that a file names, in small parts so that other work continues.

        Only existing files are marked: a file that comes later is young, and is kept for that reason.
        """
        path = self._blobs.find(file_name)
        if path is None:
            return
        with path.open("rb") as file:
            rest = b""
            while block := file.read(_BLOCK_BYTES):
                text = rest + block
                for name in map(bytes.decode, pattern.findall(text)):
                    if name not in marks and self._blobs.store.may_have(name):
                        marks.add(name)
                rest = text[-_OVERLAP_BYTES:]

    async def _sweep(self, marks: _Marks, before: float, delete: bool) -> tuple[int, int]:
        """Return the number of files that are not marked, and their size."""
        count = size_bytes = 0
        parts = self._blobs.store.older(before)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            gone = await asyncio.to_thread(self._sweep_part, part, marks, before, delete)
            count, size_bytes = count + len(gone), size_bytes + sum(gone.values())
            if delete:
                await self._users.forget(list(gone))
        if delete:
            await asyncio.to_thread(self._blobs.store.tidy)
        return count, size_bytes

    def _sweep_part(self, files: Mapping[str, int], marks: _Marks, before: float, delete: bool) -> dict[str, int]:
        """Return those of the files that are not marked, and their sizes."""
        return {
            name: size
            for name, size in files.items()
            if name not in marks and (not delete or self._blobs.store.remove(name, before))
        }

    def _clear_uploads(self, now: float, delete: bool) -> tuple[int, int]:
        parts = self._blobs.unfinished(now - self._settings.file_grace_s)
        size_bytes = sum(part.stat().st_size for part in parts if part.exists())
        if delete:
            for part in parts:
                part.unlink(missing_ok=True)
            self._blobs.clear_unfinished()
        return len(parts), size_bytes


def left_since(settings: MasterSettings, now: float) -> float:
    """Return the time since which outputs of failed attempts are kept; 0: they are kept like others."""
    days = settings.failed_outputs_days
    return 0.0 if days is None else now - days * DAY_S


def _reason(older_than_s: float, by_hand: bool) -> str:
    age = f"{older_than_s / DAY_S:g} days"
    return f"loopline prune, of jobs over for {age}" if by_hand else f"retention_days = {older_than_s / DAY_S:g}"
