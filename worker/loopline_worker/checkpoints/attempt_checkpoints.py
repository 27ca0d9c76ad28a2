"""The wing's part in one attempt: it resumes from a checkpoint, takes new ones, and takes the last one at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from loopline_shared.model import Outcome
from loopline_shared.protocol.checkpoints import RefusedCheckpoint, TakenCheckpoint
from loopline_worker.attempts.agent_wing import AgentView, AttemptPart, OngoingAttempt
from loopline_worker.checkpoints.folder_snapshot import NotTakenError, stamps
from loopline_worker.checkpoints.gang_steps import GangSteps
from loopline_worker.checkpoints.interval import CheckpointIntervals
from loopline_worker.checkpoints.packing import Checkpoint, Packed
from loopline_worker.checkpoints.resuming import IncompleteError, Resuming
from loopline_worker.checkpoints.save_events import SaveEvents
from loopline_worker.checkpoints.sending import Sending
from loopline_worker.checkpoints.snapshots import OUTPUT_AHEAD, Snapshots
from loopline_worker.checkpoints.tools import CheckpointTools
from loopline_worker.checkpoints.variables import TIMES

if TYPE_CHECKING:
    from loopline_shared.protocol.worker_link import Run
    from loopline_worker.attempts.judge import Verdict
    from loopline_worker.launch.interface import Ended, Job, Tree
    from loopline_worker.launch.process_tree import PosixTree

log = logging.getLogger(__name__)

News = TakenCheckpoint | RefusedCheckpoint | None
SAVED = "it saved its state, and continues"
MOST_MISSED = 10
RETRY_S = 0.2
"""Time until a gang's member tries again to take a step, as long as it is the newest."""
SEND_LAST_S = 60.0
"""Longest time that a result waits until the task's last checkpoint is sent."""


class AttemptCheckpoints(AttemptPart):
    """The part in an attempt whose order asks for checkpoints."""

    prepares = True

    def __init__(
        self, run: Run, tools: CheckpointTools, agent: AgentView, on_news: Callable[[News], None],
        on_end: Callable[[], None],
    ) -> None:  # fmt: skip
        """``on_news`` is called with each checkpoint that the master has, and with the reason why none is taken.

        It is called with None if the checkpoint that the master offered is incomplete.
        """
        assert run.checkpoint
        self._order = run.checkpoint
        self._tools = tools
        self._agent = agent
        self._on_news, self._on_end = on_news, on_end
        self._stored = tools.store.task(run.attempt)
        self._intervals = CheckpointIntervals(run.checkpoint, time.monotonic())
        self._sending = Sending(self._stored, tools, self._intervals, self._on_sent)
        self._news = asyncio.Event()
        self._events = SaveEvents(self._news.set, self._count_output)
        self._tree: Tree | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_frozen = False
        self._must_take = False  # without waiting for the next due time: the task is frozen
        self._steps = GangSteps() if run.gang else None
        self._rank = run.gang.rank if run.gang else None
        self._missed = 0  # due times when the output was ahead of the state
        self._said = ""  # why none was taken

    def attach(self, attempt: OngoingAttempt) -> None:
        """Set the attempt."""
        self._attempt = attempt
        self._snapshots = Snapshots(
            attempt,
            self._order.max_bytes,
            self._events,
            self._stored,
            self._tools,
            agent=self._agent,
            rank=self._rank,
        )
        self._snapshots.needed = lambda: self._sending.needed

    async def prepare(self, job: Job) -> None:
        """Make the checkpoint folder, with the state that the attempt continues. Raises StagingError, OSError."""
        resuming = Resuming(self._order, self._agent.life, self._stored, self._tools.cache)
        try:
            start = await resuming.restore(self._attempt.folder, self._attempt.streams)
        except IncompleteError:
            self._on_news(None)
            raise
        self._snapshots.start = start
        job.environment[TIMES] = str(start.times)
        self.earlier_s = start.wall_s
        self._first = self._snapshots.stamps = await asyncio.to_thread(stamps, self._snapshots.folder)
        self._events.open(self._snapshots.folder)
        if start.manifest:
            log.info("attempt %s continues after %.0f s of work", self._attempt.id, start.wall_s)
        if start.at_master:
            self._sending.at_master, self._sending.sent_s = frozenset(start.sizes), start.wall_s
        elif record := self._stored.record():
            record = replace(record, attempt=self._attempt.id, times=start.times)
            self._sending.offer(Checkpoint(Packed(start.manifest, {}, start.sizes), record))

    def started(self, tree: Tree) -> None:
        """Take checkpoints from now on, where that is possible while the task runs."""
        from loopline_worker.launch.process_tree import PosixTree  # not on Windows

        self._tree = tree
        if isinstance(tree, PosixTree) and self._events.is_open:
            self._events.open_streams([stream.read_end for stream in self._attempt.streams])
            keep = self._keep(tree) if self._steps is None else self._keep_steps(tree, self._steps)
            self._keeping = self._tools.task_group.start(keep)

    def on_frozen(self, is_frozen: bool) -> None:
        """Take one as soon as the task is frozen: it costs the task nothing."""
        if is_frozen != self._is_frozen:
            self._is_frozen = self._must_take = is_frozen
            self._news.set()

    async def on_end(self, ended: Ended, verdict: Verdict) -> Verdict:
        """Take the last checkpoint of a task that is not done. Return the verdict on it."""
        outcome, _ = verdict
        ended_itself = ended.exit_code is not None and ended.exit_code == self._order.exit_code and not ended.breach
        continues = outcome is Outcome.FAILED and ended_itself and not self._attempt.is_unwanted
        is_unfinished = (continues or outcome is Outcome.GIVEN_BACK) and not self._steps
        await self._stop(abandons=not is_unfinished)
        if not is_unfinished or self._tree is None:
            await self._sending.stop()
            if self._tree and outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
                await asyncio.to_thread(self._stored.clear)
            return verdict
        if self._events.is_open or _has_exited(ended):  # else its output may be ahead of its state
            await self._take_last(is_orderly=ended_itself)
        if continues and not self._has_more():
            return Outcome.FAILED, f"it ended with exit code {ended.exit_code} to be continued, and saved nothing new"
        if not (self._agent.is_stopping or self._tools.allowance.why_closed):
            await self._sending.send_last(SEND_LAST_S)
        await self._sending.stop()
        return (Outcome.GIVEN_BACK, SAVED) if continues else verdict

    def after_end(self) -> None:
        """Close the watch."""
        self._events.close()
        self._on_end()

    def _on_sent(self, taken: TakenCheckpoint) -> None:
        self._on_news(replace(taken, costs=replace(taken.costs, held_s=self._snapshots.held_s)))

    def _count_output(self) -> int:
        return sum(stream.size_bytes for stream in self._attempt.streams)

    # While it runs.

    async def _keep(self, tree: PosixTree) -> None:
        """Take checkpoints until the attempt has ended."""
        while not self._is_over:
            self._news.clear()
            self._events.read()
            wait_s = self._intervals.due_at - time.monotonic()
            if self._must_take or wait_s <= 0:
                self._must_take = False
                has_changed = await self._snapshots.has_changed()
                if has_changed and self._events.output_matches:
                    await self._make_checkpoint(tree)
                    continue
                wait_s = self._intervals.interval_s
                self._missed += has_changed
                if self._missed >= MOST_MISSED:
                    self._explain(OUTPUT_AHEAD)
            if self._is_frozen:
                self._sending.hurry()  # for a replica
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _keep_steps(self, tree: PosixTree, steps: GangSteps) -> None:
        """Take the checkpoints of a gang's member until the attempt has ended, and send each at once."""
        while not self._is_over:
            self._news.clear()
            self._events.read()
            now = time.monotonic()
            if steps.is_due(self._events.step, self._intervals.gang_interval_s, now):
                if await self._make_checkpoint(tree):
                    self._sending.hurry()
                else:
                    steps.missed()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if steps.is_missed else None):
                    await self._news.wait()

    async def _make_checkpoint(self, tree: PosixTree) -> bool:
        """Take one. False if that fails."""
        began_at = time.monotonic()
        try:
            checkpoint = await self._snapshots.make(tree)
        except (NotTakenError, OSError) as error:
            self._intervals.not_taken(time.monotonic())
            if self._intervals.is_failing:
                self._explain(str(error))
            return False
        self._said, self._missed = "", 0
        self._intervals.taken(began_at, time.monotonic() - began_at)
        self._sending.offer(checkpoint)
        return True

    def _explain(self, reason: str) -> None:
        """Log and report why there is no checkpoint, once."""
        if not self._is_over and reason != self._said:
            self._said = reason
            self._on_news(RefusedCheckpoint(self._attempt.id, reason[:500]))
            log.info("attempt %s: no checkpoint is taken now: %s", self._attempt.id, reason)

    # Its end.

    async def _stop(self, *, abandons: bool) -> None:
        self._is_over = True
        self._news.set()
        if abandons:
            self._snapshots.abandon()
        if self._keeping:
            await asyncio.wait([self._keeping])

    async def _take_last(self, *, is_orderly: bool) -> None:
        try:
            checkpoint = await self._snapshots.make_last(is_orderly=is_orderly)
        except (NotTakenError, OSError) as error:
            log.info("attempt %s: no last checkpoint is taken: %s", self._attempt.id, error)
        else:
            if checkpoint:
                self._sending.offer(checkpoint)

    def _has_more(self) -> bool:
        """True if it has saved anything since it started."""
        return self._snapshots.newest is not None and self._snapshots.stamps != self._first


def _has_exited(ended: Ended) -> bool:
    """True if the task ended by itself, perhaps because it was asked to."""
    return ended.exit_code is not None and ended.exit_code >= 0 and not ended.killed
