"""Snapshots of one task: taken while it is stopped for a moment, or after its end, and stored on the local disk."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_shared.model import Sha256
from loopline_shared.paths import CHECKPOINT, TEMPORARY
from loopline_worker.attempts import result_file
from loopline_worker.attempts.agent_wing import AgentView, OngoingAttempt
from loopline_worker.checkpoints.folder_snapshot import (
    NotTakenError,
    SnapshotTerms,
    Stamp,
    TakenFolder,
    fill,
    stamps,
)
from loopline_worker.checkpoints.local_store import Record, StoredTask
from loopline_worker.checkpoints.packing import Checkpoint, OutputTaken, pack
from loopline_worker.checkpoints.resuming import StartingPoint
from loopline_worker.checkpoints.save_events import SaveEvents
from loopline_worker.checkpoints.tools import CheckpointTools
from loopline_worker.files import confined_paths

if TYPE_CHECKING:
    from loopline_worker.launch.process_tree import PosixTree

OUTPUT_AHEAD = "it has written output since it saved: write first, then rename"
STOPPED_S = 0.05
"""Longest time that a task is stopped for a snapshot."""
PATIENCE_S = 5.0
"""Longest wait until the processes of a task that is frozen anyway are stopped."""
_LOOK_S = 0.001
_NO_MANIFEST = "0" * 64
_BROKEN_LEASE = int(getattr(signal, "SIGURG", 0))
_RESULT_BYTES = 16 * 1024
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Snapshots:
    """Takes the snapshots of one attempt, one at a time."""

    def __init__(
        self, attempt: OngoingAttempt, max_bytes: int, events: SaveEvents, stored: StoredTask, tools: CheckpointTools,
        agent: AgentView, rank: int | None = None,
    ) -> None:  # fmt: skip
        """``rank``: of a gang's member; None: it is no gang."""
        self.start = StartingPoint()
        self.held_s = 0.0  # time that the task was stopped for snapshots
        self.newest: Checkpoint | None = None
        self.stamps: Mapping[str, Stamp] = {}  # of the files in the newest one, or as the task started
        self.needed: Callable[[], Collection[Sha256]] = tuple  # pieces that may not be removed
        self._attempt = attempt
        self._max_bytes = max_bytes
        self._events = events
        self._stored = stored
        self._tools = tools
        self._agent = agent
        self._rank = rank
        self._taken: TakenFolder | None = None  # being read
        self._is_abandoned = False
        self._has_writer = False  # of a file in the newest one

    @property
    def folder(self) -> Path:
        """The folder that is saved."""
        return self._attempt.folder / CHECKPOINT

    async def has_changed(self) -> bool:
        """True if files may have changed since the newest checkpoint, with or without an event."""
        if self._events.is_changed or self._has_writer:
            return True
        with suppress(OSError):  # the task is changing the folder
            found = await asyncio.to_thread(stamps, self.folder)
            return any(self.stamps.get(path) != stamp for path, stamp in found.items())
        return True

    def abandon(self) -> None:
        """Drop the snapshot that is not stored yet."""
        self._is_abandoned = True
        if self._taken:
            self._taken.is_broken = True

    async def make(self, tree: PosixTree) -> Checkpoint:
        """Take one of a running or frozen task. Raises NotTakenError, OSError."""
        self._attempt.measure()
        lessor = tree.lessor(str(self._attempt.folder))
        if lessor is None:
            return await self._make(tree)
        lessor.settimeout(STOPPED_S)
        with lessor:
            return await self._make(tree, lessor)

    async def _make(self, tree: PosixTree, lessor: socket.socket | None = None) -> Checkpoint:
        began_at, was_frozen = time.monotonic(), self._attempt.is_frozen
        if not tree.hold():
            raise NotTakenError("its processes cannot be stopped from here")
        try:
            await self._until_still(tree, was_frozen)
            record = self._catch_up()
            deadline = (time.monotonic() if was_frozen else began_at) + STOPPED_S
            taken, output = await self._snapshot(deadline, lessor)
        finally:
            tree.release()
            if not was_frozen:
                self.held_s += time.monotonic() - began_at
        return await self._store(taken, output, record)

    async def make_last(self, *, is_orderly: bool) -> Checkpoint | None:
        """Take one after the end of all processes. None if the newest one counts. Raises NotTakenError, OSError.

        ``is_orderly``: the task has ended by itself, so all of its output belongs to its state.
        """
        self._events.read()
        if not (is_orderly or await self.has_changed()):
            return None
        record = self._catch_up(is_orderly=is_orderly)
        taken, output = await self._snapshot(None)
        return await self._store(taken, output, record)

    async def _until_still(self, tree: PosixTree, was_frozen: bool) -> None:
        """Wait until no process runs: briefly, unless the task is frozen and stays so."""
        give_up_at, pause_s = time.monotonic() + (PATIENCE_S if was_frozen else STOPPED_S / 2), _LOOK_S
        while not tree.is_held():
            if tree.has_ended or time.monotonic() > give_up_at or was_frozen > self._attempt.is_frozen:
                raise NotTakenError("its processes did not stop in the time that it may be stopped for")
            await asyncio.sleep(pause_s)
            pause_s *= 2 if was_frozen else 1

    def _catch_up(self, *, is_orderly: bool = False) -> Record:
        """Read all output and all events of the task, which is still. Return the record of a checkpoint of now."""
        for stream in self._attempt.streams:
            stream.read_now()
        self._events.read()
        if not is_orderly and not self._events.output_matches:
            raise NotTakenError(OUTPUT_AHEAD)
        held, start = self._attempt.held, self.start
        line = start.line if self._tools.worker in start.line else (*start.line, self._tools.worker)
        times_s = start.cpu_s + held.cpu_s, start.wall_s + held.wall_s
        return Record(
            self._agent.life, self._attempt.id, _NO_MANIFEST, *times_s,
            line=line, times=start.times, progress=held.progress,
        )  # fmt: skip

    async def _snapshot(
        self, deadline: float | None, lessor: socket.socket | None = None
    ) -> tuple[TakenFolder, OutputTaken]:
        """Take folder and output as they are. ``deadline``: None after the end of the task."""
        newest = self.newest.packed if self.newest and not self.newest.packed.is_wasteful else None
        known = newest.known if newest else {}
        terms = SnapshotTerms(
            self._max_bytes, known, deadline, on_break=_BROKEN_LEASE, most_open=_most_open(), lessor=lessor,
            newest_step_only=self._rank is not None,
        )  # fmt: skip
        self._events.settle()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._tools.takers, self._snapshot_all, terms)
        except BaseException:
            self._events.is_changed = True
            raise

    def _snapshot_all(self, terms: SnapshotTerms) -> tuple[TakenFolder, OutputTaken]:
        taken = TakenFolder(self.folder, time.time_ns())
        self._tools.taken.add(taken)
        try:
            fill(taken, terms)
            return taken, self._output()
        except BaseException:
            self._tools.taken.discard(taken)
            taken.close()
            raise

    def _output(self) -> OutputTaken:
        out, err = self._attempt.streams
        stdout, stderr, sizes = out.content(), err.content(), (out.size_bytes, err.size_bytes)
        written_bytes = None if sizes == (len(stdout), len(stderr)) else sizes
        return OutputTaken(stdout, stderr, self._result(), written_bytes, self._rank or 0)

    def _result(self) -> bytes | None:
        """Return what the task has written to LOOPLINE_RESULT; None if there is no such file, or it is too long."""
        folder, names = self._attempt.folder, (TEMPORARY, result_file.NAME)
        with suppress(OSError), confined_paths.folder(folder, names[:1]) as handle:
            file = os.open(confined_paths.at(folder, names, handle), _OPEN, dir_fd=handle)
            with os.fdopen(file, "rb") as stream:
                content = stream.read(_RESULT_BYTES + 1)
            return content if len(content) <= _RESULT_BYTES else None
        return None

    async def _store(self, taken: TakenFolder, output: OutputTaken, record: Record) -> Checkpoint:
        """Read what was taken, and write it to the local disk."""
        self._taken = taken
        taken.is_broken |= self._is_abandoned
        before = self.newest.packed if self.newest else None
        loop, readers = asyncio.get_running_loop(), self._tools.readers
        try:
            if self._tools.free_bytes() < taken.size_bytes:
                raise NotTakenError("the disk has no room for it")
            packed = await loop.run_in_executor(readers, pack, taken, output, self._stored, before)
            record = replace(record, manifest=packed.manifest, step=taken.step)
            pieces = {*packed.sizes, *self.needed()}
            syncs = not (self._agent.is_in_use or self._agent.is_stopping)
            await loop.run_in_executor(readers, lambda: self._stored.commit(record, pieces, syncs=syncs))
        except BaseException:
            self._events.is_changed = True
            raise
        finally:
            taken.close()
            self._taken = None
            self._tools.taken.discard(taken)
        self.stamps, self._has_writer = {file.path: file.stamp for file in taken.files}, taken.has_writer
        self.newest = Checkpoint(packed, record)
        return self.newest


def _most_open() -> int:
    """Return how many files of a task may be open at a time."""
    if sys.platform == "win32":
        return 0
    import resource

    return max(100, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
