"""Keeps the master's files in bounds: collects those that no row names, and lets go of those of old jobs.

Mark: what is named by the rows of all jobs whose files are kept. Sweep: remove the other files, but none younger
than the grace time, for it may be about to be named. Both go through the rows and the folders a little at a time. A
job's files are let go in the rows first: a crash leaves files too many, never a name too many.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loopline_master.files.blobs import Blobs
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import PruneReport

log = logging.getLogger(__name__)

DAY_S = 86400.0
_FIRST_AFTER_S = 300.0
_JOBS_TOLD = 100
_NAME = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_ROW_FILE = re.compile(r'"parameters":\{[^{}\[\]]*"file":"sha256:([0-9a-f]{64})"')
_NAME_IN_ROWS = re.compile(rb"sha256:([0-9a-f]{64})")
_BLOCK_BYTES = 2**20
_OVERLAP_BYTES = len("sha256:") + 64 - 1
_KEY_CHARACTERS = 15
"""Of a name, that are remembered of it as a number: two files that have them in common are kept for one another."""


@dataclass(slots=True)
class _Marks:
    """Files that are named."""

    keys: set[int] = field(default_factory=set)

    def add(self, name: str) -> None:
        self.keys.add(int(name[:_KEY_CHARACTERS], 16))

    def __contains__(self, name: str) -> bool:
        return int(name[:_KEY_CHARACTERS], 16) in self.keys


class Retention:
    def __init__(self, store: Store, blobs: Blobs, settings: MasterSettings) -> None:
        self._store = store
        self._blobs = blobs
        self._settings = settings
        self._turn = asyncio.Lock()
        self.releasing = asyncio.Lock()
        """Held where the files of jobs are let go, and where a job is retried: one of them comes first."""

    async def run(self) -> None:
        """Collect now and then, for ever. What fails is told in the log, and tried again."""
        await asyncio.sleep(min(_FIRST_AFTER_S, self._settings.prune_every_s))
        while True:
            try:
                report = await self.prune(self._retention_s(), delete=True)
                if report.files:
                    log.info("removed %d files (%d bytes) that nobody needs", report.files, report.bytes)
            except (OSError, LooplineError) as error:
                log.warning("cannot remove files that nobody needs: %s", error)
            await asyncio.sleep(self._settings.prune_every_s)

    async def prune(self, older_than_s: float | None, *, delete: bool, by_hand: bool = False) -> PruneReport:
        """What there is to remove, and with ``delete`` its removal. ``older_than_s``: files of jobs that have been
        over for so long, too; None: of no job.
        """
        async with self._turn:
            now = time.time()
            expired = [] if older_than_s is None else await self._store.files.expired(now - older_than_s)
            if delete and expired:
                async with self.releasing:
                    await self._store.files.let_go(expired, now, _reason(older_than_s or 0.0, by_hand))
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
        async for text in self._naming(without):
            for found in _ROW_FILE.finditer(text):
                await asyncio.to_thread(self._mark_rows, marks, found[1])
            for name in _NAME.findall(text):
                marks.add(name)
        return marks

    def _naming(self, without: frozenset[int]) -> AsyncIterator[str]:
        return self._store.files.naming(without)

    def _mark_rows(self, marks: _Marks, row_file: str) -> None:
        """The lines of a row file may name files, too. A little at a time, for matching keeps all else waiting; and
        only names of files that are here: what is not marked because it is not, is young when it comes.
        """
        path = self._blobs.find(row_file)
        if path is None:
            return
        with path.open("rb") as file:
            rest = b""
            while block := file.read(_BLOCK_BYTES):
                text = rest + block
                for name in map(bytes.decode, _NAME_IN_ROWS.findall(text)):
                    if name not in marks and self._blobs.find(name):
                        marks.add(name)
                rest = text[-_OVERLAP_BYTES:]

    async def _sweep(self, marks: _Marks, before: float, delete: bool) -> tuple[int, int]:
        """How many files, and how large."""
        count = size_bytes = 0
        for folder in sorted(self._blobs.folder.iterdir()):
            if len(folder.name) == 2:
                more, bytes_ = await asyncio.to_thread(self._sweep_folder, folder, marks, before, delete)
                count, size_bytes = count + more, size_bytes + bytes_
        return count, size_bytes

    def _sweep_folder(self, folder: Path, marks: _Marks, before: float, delete: bool) -> tuple[int, int]:
        count = size_bytes = 0
        for name, size in _older(folder, before):
            if name not in marks and (not delete or self._blobs.remove(name, before)):
                count, size_bytes = count + 1, size_bytes + size
        return count, size_bytes

    def _clear_uploads(self, now: float, delete: bool) -> tuple[int, int]:
        parts = self._blobs.unfinished(now - self._settings.file_grace_s)
        size_bytes = sum(part.stat().st_size for part in parts if part.exists())
        if delete:
            for part in parts:
                part.unlink(missing_ok=True)
            self._blobs.clear_unfinished()
        return len(parts), size_bytes


def _older(folder: Path, before: float) -> Iterator[tuple[str, int]]:
    for file in folder.iterdir():
        status = file.stat()
        if status.st_mtime < before:
            yield folder.name + file.name, status.st_size


def _reason(older_than_s: float, by_hand: bool) -> str:
    age = f"{older_than_s / DAY_S:g} days"
    return f"loopline prune, of jobs over for {age}" if by_hand else f"retention_days = {older_than_s / DAY_S:g}"
