"""Resuming: an attempt continues from the usable checkpoint that contains the most work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from loopline_shared.model import Name, Outcome, Sha256
from loopline_shared.paths import CHECKPOINT
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.saved_state import SavedState, decode
from loopline_worker.attempts import progress_file, result_file, scratch
from loopline_worker.attempts.capture import Capture
from loopline_worker.checkpoints.local_store import Record, StoredTask
from loopline_worker.checkpoints.restoring import Restoring
from loopline_worker.checkpoints.tools import in_thread, together
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import DownloadError
from loopline_worker.files.staging import StagingError

log = logging.getLogger(__name__)

_AT_ONCE = 4
_MOST_TEXT_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The state that an attempt begins from. Times count from the beginning of the task."""

    manifest: Sha256 = ""  # empty: from the beginning
    cpu_s: float = 0.0
    wall_s: float = 0.0
    line: tuple[Name, ...] = ()  # workers that have computed it, each once
    times: int = 0  # this is the task's resumption of this number
    is_local: bool = False  # it is on this computer's disk
    at_master: bool = False
    progress: float | None = None
    sizes: Mapping[Sha256, int] = field(default_factory=dict)  # of its pieces; at least a part of each is known


class IncompleteError(StagingError):
    """The checkpoint that the master offers is incomplete, for every worker."""


class Resuming:
    """Finds and restores the state that an attempt begins from."""

    def __init__(self, order: CheckpointOrder, life: str, stored: StoredTask, cache: Cache) -> None:
        self._order = order
        self._life = life
        self._stored = stored
        self._cache = cache

    async def restore(self, folder: Path, streams: tuple[Capture, Capture]) -> StartingPoint:
        """Make the task's checkpoint folder, with the best usable state in it. Return that state.

        Raises IncompleteError or another StagingError if the checkpoint that the master offers cannot be used.
        """
        failure: Exception | None = None
        for start in await asyncio.to_thread(lambda: list(self._starts())):
            await asyncio.to_thread(_empty, folder / CHECKPOINT)
            try:
                return await self._restore(start, folder, streams) if start.manifest else start
            except (OSError, ValueError, DownloadError) as error:
                log.warning("checkpoint %.12s cannot be used: %s", start.manifest, error)
                failure = error
                if start.is_local:
                    await asyncio.to_thread(self._stored.clear)
        reason = f"its checkpoint cannot be used here: {failure}"
        is_incomplete = isinstance(failure, ValueError) or (isinstance(failure, DownloadError) and failure.is_gone)
        raise (IncompleteError if is_incomplete else StagingError)(Outcome.GIVEN_BACK, reason)

    def _starts(self) -> Iterator[StartingPoint]:
        """Yield the possible starts, the best first; the last is the master's."""
        start, offered, record = StartingPoint(), self._order.resume, self._own_record()
        if offered:
            start = StartingPoint(
                offered.manifest,
                offered.cpu_s,
                offered.wall_s,
                offered.line,
                offered.times,
                progress=offered.progress,
            )
        if record and record.manifest == start.manifest:
            yield replace(start, is_local=True)
        elif record:
            times = max(record.times + 1, start.times)
            yield StartingPoint(
                record.manifest, record.cpu_s, record.wall_s, record.line, times,
                is_local=True, progress=record.progress,
            )  # fmt: skip
        yield start

    def _own_record(self) -> Record | None:
        """Return the record of this computer's checkpoint, if it is the better one; remove it if it is of no use."""
        record, offered = self._stored.record(), self._order.resume
        if record is None:
            return None
        is_same = offered is not None and offered.manifest == record.manifest
        has_more = offered is None or (record.cpu_s, record.wall_s) > (offered.cpu_s, offered.wall_s)
        if record.life == self._life and (is_same or (self._order.own and has_more)):
            return record
        self._stored.clear()
        return None

    async def _restore(self, start: StartingPoint, folder: Path, streams: tuple[Capture, Capture]) -> StartingPoint:
        """Write the files of a checkpoint. Raises DownloadError, OSError, or ValueError if something is damaged."""
        state = await self._state(start)
        self._check_size(state)
        restoring = Restoring(state, folder / CHECKPOINT)
        await in_thread(restoring.make)
        pieces = iter(restoring.parts)
        await together(*(self._write(pieces, restoring, start.is_local) for _ in range(_AT_ONCE)))
        if state.result:
            (scratch.temporary(folder) / result_file.NAME).write_bytes(restoring.text("result"))
        if start.progress is not None:
            (scratch.temporary(folder) / progress_file.NAME).write_text(str(start.progress))
        written = state.written_bytes or (0, 0)
        for stream, name, size_bytes in zip(streams, ("stdout", "stderr"), written, strict=True):
            text = restoring.text(name)
            stream.restore(text, max(size_bytes, len(text)))
        sizes = {piece: max(at + size for _, _, at, size in parts) for piece, parts in restoring.parts.items()}
        offered = self._order.resume
        return replace(start, sizes=sizes, at_master=offered is not None and offered.manifest == start.manifest)

    async def _state(self, start: StartingPoint) -> SavedState:
        if start.is_local:
            return decode(await asyncio.to_thread(self._stored.read, start.manifest))
        async with self._cache.hold(start.manifest) as path:
            return decode(await asyncio.to_thread(path.read_bytes))

    async def _write(self, pieces: Iterator[Sha256], restoring: Restoring, is_local: bool) -> None:
        for piece in pieces:
            if is_local:
                content = await asyncio.to_thread(self._stored.read, piece)
                await in_thread(restoring.write, piece, content)
            else:
                async with self._cache.hold(piece) as path:
                    await in_thread(restoring.write_from, piece, path)

    def _check_size(self, state: SavedState) -> None:
        size_bytes = sum(file.size_bytes for file in state.files.values())
        texts = sum(file.size_bytes for file in (state.stdout, state.stderr, state.result) if file)
        if size_bytes > self._order.max_bytes or texts > _MOST_TEXT_BYTES:
            raise ValueError(f"it has {size_bytes + texts:,} bytes")


def _empty(folder: Path) -> None:
    scratch.remove(folder)
    folder.mkdir()
