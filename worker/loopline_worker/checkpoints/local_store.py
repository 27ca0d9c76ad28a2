"""Checkpoints on this computer's disk: of each task the newest, as pieces by content, a manifest and a record.

In ``<folder>/<job>.<task>`` the folder ``pieces`` has pieces and manifest by their SHA-256, and ``record.json`` names
the manifest. It is replaced last, so that there is always a whole checkpoint. It survives ``kill -9`` of the
agent. After a power failure a piece may be damaged, so each is checked by its hash before it is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_shared.model import AttemptId, Name, Seconds, Sha256
from loopline_shared.protocol.saved_state import SavedState, decode

KEPT_S = 7 * 86_400.0
"""A checkpoint that is not used is removed after this time."""
_RECORD, _PIECES, _UNFINISHED = "record.json", "pieces", "unfinished"


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a checkpoint. Times count from the beginning of the task."""

    life: str
    attempt: AttemptId  # that took it
    manifest: Sha256
    cpu_s: Seconds
    wall_s: Seconds
    line: tuple[Name, ...]  # workers that have computed it, each once
    times: int  # resumptions before it
    progress: float | None = None  # of the task, as that tells; None: it does not
    step: int | None = None  # the N of the newest ``step-N`` in it; None: there is no such name


_record: TypeAdapter[Record] = TypeAdapter(Record)


@dataclass(slots=True)
class StoredTask:
    """The checkpoint of one task. Only one thread at a time may call the methods that write."""

    folder: Path
    _written: set[Sha256] = field(default_factory=set)  # pieces, by this process
    _unsynced: set[Sha256] = field(default_factory=set)  # written, but not yet synced to disk

    def record(self) -> Record | None:
        """Return the record of the newest checkpoint; None if there is none."""
        try:
            return _record.validate_json((self.folder / _RECORD).read_bytes())
        except (OSError, ValidationError):
            return None

    def path(self, sha256: Sha256) -> Path:
        """Return the place of a piece or a manifest, which need not be there."""
        return self.folder / _PIECES / sha256

    def read(self, sha256: Sha256) -> bytes:
        """Return a piece. Raises OSError, or ValueError if it is damaged."""
        content = self.path(sha256).read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"{self.path(sha256)} is damaged")
        return content

    def state(self, record: Record) -> SavedState:
        """Return the manifest of a checkpoint. Raises OSError, or ValueError if it is damaged."""
        return decode(self.read(record.manifest))

    def put(self, content: bytes) -> Sha256:
        """Write a piece, unless this process has written it before. Return its name. Raises OSError."""
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 not in self._written:
            (self.folder / _PIECES).mkdir(parents=True, exist_ok=True)
            self._replace(self.path(sha256), content)
            self._written.add(sha256)
            self._unsynced.add(sha256)
        return sha256

    def commit(self, record: Record, pieces: Collection[Sha256], *, syncs: bool) -> None:
        """Make this the task's checkpoint, once its pieces are written. ``syncs``: also for a power failure.

        Pieces that are not among these are removed. Raises OSError.
        """
        if syncs:
            for sha256 in self._unsynced.intersection((record.manifest, *pieces)):
                with self.path(sha256).open("rb") as file:
                    os.fsync(file.fileno())
                self._unsynced.discard(sha256)
        self._replace(self.folder / _RECORD, _record.dump_json(record))
        self._prune({record.manifest, *pieces})

    def clear(self) -> None:
        """Remove the checkpoint."""
        self._written.clear()
        self._unsynced.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prune(self, wanted: Collection[Sha256]) -> None:
        for piece in (self.folder / _PIECES).iterdir():
            if piece.name not in wanted:
                piece.unlink(missing_ok=True)
                self._written.discard(piece.name)
                self._unsynced.discard(piece.name)

    def _replace(self, path: Path, content: bytes) -> None:
        unfinished = self.folder / _UNFINISHED
        unfinished.write_bytes(content)
        unfinished.replace(path)


class LocalStore:
    """The checkpoints of all tasks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def task(self, attempt: AttemptId) -> StoredTask:
        """Return the checkpoint of an attempt's task, which need not be there."""
        return StoredTask(self._folder / str(attempt.task_id))

    def sweep(self) -> None:
        """Remove what has not been used for ``KEPT_S``."""
        before = time.time() - KEPT_S
        for folder in self._unused(()):
            if folder.stat().st_mtime < before:
                shutil.rmtree(folder, ignore_errors=True)

    def make_room(self, wanted_bytes: int, in_use: Collection[AttemptId]) -> None:
        """Remove checkpoints of tasks that do not run here, the oldest first, until ``wanted_bytes`` are free."""
        for folder in self._unused(in_use):
            if wanted_bytes <= 0:
                return
            wanted_bytes -= sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            shutil.rmtree(folder, ignore_errors=True)

    def _unused(self, in_use: Collection[AttemptId]) -> list[Path]:
        names = {str(attempt.task_id) for attempt in in_use}
        with suppress(FileNotFoundError):
            folders = [folder for folder in self._folder.iterdir() if folder.name not in names]
            return sorted(folders, key=lambda folder: folder.stat().st_mtime)
        return []
