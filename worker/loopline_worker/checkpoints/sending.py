"""Sending the checkpoints of one attempt to the master: one at a time, first the pieces and then the manifest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from loopline_shared.model import Sha256
from loopline_shared.protocol.checkpoints import CheckpointCosts, TakenCheckpoint
from loopline_worker.checkpoints.interval import CheckpointIntervals
from loopline_worker.checkpoints.local_store import StoredTask
from loopline_worker.checkpoints.packing import Checkpoint
from loopline_worker.checkpoints.tools import CheckpointTools, together
from loopline_worker.files.uploads import UploadRefusedError

log = logging.getLogger(__name__)

_AT_ONCE = 2


class Sending:
    """Sends the newest checkpoint when one is due."""

    def __init__(
        self,
        stored: StoredTask,
        tools: CheckpointTools,
        intervals: CheckpointIntervals,
        on_sent: Callable[[TakenCheckpoint], None],
    ) -> None:
        self.at_master: frozenset[Sha256] = frozenset()
        """Pieces of the newest checkpoint that the master has."""
        self.sent_s = 0.0  # run time of the task in the newest one at the master
        self._intervals = intervals
        self._stored = stored
        self._tools = tools
        self._on_sent = on_sent
        self._newest: Checkpoint | None = None
        self._sent = ""  # manifest
        self._sent_count, self._sent_bytes = 0, 0
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_its_way: Checkpoint | None = None

    @property
    def needed(self) -> frozenset[Sha256]:
        """The pieces that must stay on the disk until they are sent."""
        kept = [one.packed for one in (self._on_its_way, self._newest) if one and one.packed.manifest != self._sent]
        return frozenset(name for packed in kept for name in (packed.manifest, *packed.sizes))

    def offer(self, checkpoint: Checkpoint) -> None:
        """Send this one when the next upload is due, unless a newer one comes before."""
        self._newest = checkpoint
        self._plan()

    def hurry(self) -> None:
        """Send the newest checkpoint now, unless one is under way."""
        if self._newest and self._newest.packed.manifest != self._sent and self._sending is None:
            if self._timer:
                self._timer.cancel()
            self._start()

    async def send_last(self, longest_s: float) -> None:
        """Send the newest checkpoint now. The upload of an older one is cancelled."""
        if self._newest is None or self._newest.packed.manifest == self._sent:
            return
        if self._on_its_way is not self._newest:
            await self.stop()
            self._start()
        try:
            async with asyncio.timeout(longest_s):
                while self._sending:
                    await asyncio.shield(self._sending)
        except TimeoutError:
            log.info("the last checkpoint of %s stays here: it was not sent in time", self._newest.record.attempt)

    async def stop(self) -> None:
        """Stop sending."""
        if self._timer:
            self._timer.cancel()
        if self._sending:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        self._sending = self._timer = None

    def _plan(self) -> None:
        """Start sending when it is due. What is under way is finished first."""
        if self._sending is None:
            if self._timer:
                self._timer.cancel()
            now = time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(self._intervals.upload_at(now) - now, self._start)

    def _start(self) -> None:
        self._timer, self._on_its_way = None, self._newest
        if self._on_its_way and not self._tools.is_closed:
            self._sending = self._tools.task_group.start(self._send(self._on_its_way))

    async def _send(self, one: Checkpoint) -> None:
        began_at = time.monotonic()
        try:
            sent_bytes = await self._send_pieces(one)
            self.sent_s = one.record.wall_s
        except UploadRefusedError as error:
            self._intervals.not_uploaded(time.monotonic())
            log.warning("a checkpoint of %s stays here: %s", one.record.attempt, error)
        else:
            self._intervals.uploaded(began_at, time.monotonic() - began_at)
            self._sent, self.at_master = one.packed.manifest, frozenset(one.packed.sizes)
            self._sent_count, self._sent_bytes = self._sent_count + 1, self._sent_bytes + sent_bytes
            self._on_sent(_taken(one, sent_bytes, CheckpointCosts(self._sent_count, self._sent_bytes)))
        finally:
            self._sending = self._on_its_way = None
        if self._newest is not one:
            self._plan()

    async def _send_pieces(self, one: Checkpoint) -> int:
        """Send the pieces that the master lacks, then the manifest. Return the size of these pieces in bytes."""
        packed, sent_bytes = one.packed, 0
        new = [sha256 for sha256 in packed.sizes if sha256 not in self.at_master]
        left_bytes, at_stake_s = sum(packed.sizes[sha256] for sha256 in new), one.record.wall_s - self.sent_s

        async def send(pieces: Iterator[Sha256]) -> None:
            nonlocal sent_bytes, left_bytes
            for sha256 in pieces:
                stake = at_stake_s / max(1, left_bytes)
                is_new = await self._tools.uploads.upload(sha256, self._stored.path(sha256), stake)
                size_bytes = packed.sizes.get(sha256, 0)
                sent_bytes, left_bytes = sent_bytes + size_bytes * is_new, left_bytes - size_bytes

        pieces = iter(new)
        await together(*(send(pieces) for _ in range(_AT_ONCE)))
        await send(iter((packed.manifest,)))
        return sent_bytes


def _taken(one: Checkpoint, sent_bytes: int, costs: CheckpointCosts) -> TakenCheckpoint:
    record = one.record
    return TakenCheckpoint(
        record.attempt, record.manifest, one.packed.size_bytes, sent_bytes, record.cpu_s,
        wall_s=record.wall_s, line=record.line, times=record.times, costs=costs, progress=record.progress,
        step=record.step,
    )  # fmt: skip
