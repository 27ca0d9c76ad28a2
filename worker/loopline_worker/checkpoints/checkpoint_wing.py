"""The agent's wing for checkpoints: a stopped task continues where it was.

A task with checkpoints has these variables beside those of ``preparation.TaskEnvironment``:

====================== ========================================================================
LOOPLINE_CHECKPOINT    folder for its state, in its scratch folder: as the last checkpoint left it
LOOPLINE_RESUMED       how often it was continued from a checkpoint; 0 at first
====================== ========================================================================

On systems other than Linux, the only checkpoint of an attempt is taken at its end, and members of gangs take none.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from loopline_shared.paths import CHECKPOINT
from loopline_shared.protocol.checkpoints import MAX_PER_REPORT, CheckpointReport, RefusedCheckpoint, TakenCheckpoint
from loopline_worker.attempts.agent_wing import AgentView, AgentWing
from loopline_worker.checkpoints.local_store import LocalStore
from loopline_worker.checkpoints.variables import FOLDER, TIMES

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId
    from loopline_shared.protocol.worker_link import Assign, Run, Welcome
    from loopline_worker.checkpoints.attempt_checkpoints import AttemptCheckpoints
    from loopline_worker.checkpoints.tools import CheckpointTools
    from loopline_worker.core.machine_wing import DraftReport
    from loopline_worker.launch.interface import Job


@dataclass(slots=True)
class _News:
    """News of an attempt. ``what``: None if the checkpoint that the master offered is incomplete."""

    attempt: AttemptId
    life: str  # of the master's database
    what: TakenCheckpoint | RefusedCheckpoint | None
    seq: int = 0  # of the first Report in this session with these news; 0: none yet


class Checkpoints(AgentWing):
    """Makes the parts of attempts, and reports the newest checkpoint of each until the master acknowledges it."""

    concerns = ("checkpoint",)

    def __init__(self, store: LocalStore, make_tools: Callable[[], CheckpointTools]) -> None:
        """``make_tools`` is called for the first attempt with checkpoints."""
        self._store = store
        self._make_tools = make_tools
        self._tools: CheckpointTools | None = None
        self._in_hand: set[AttemptId] = set()
        self._news: dict[tuple[AttemptId, type], _News] = {}
        self._drafted: list[_News] = []

    def attach(self, agent: AgentView) -> None:
        """Set the agent, and remove old checkpoints."""
        super().attach(agent)
        self._store.sweep()

    def connected(self, welcome: Welcome) -> None:
        """Report all news again."""
        for one in self._news.values():
            one.seq = 0

    def prepare(self, run: Run, job: Job) -> AttemptCheckpoints | None:
        """Return the part of an attempt whose order asks for checkpoints."""
        if run.checkpoint is None:
            return None
        from loopline_worker.checkpoints.attempt_checkpoints import AttemptCheckpoints

        job.makes_folder, job.pipes_output = False, True
        job.environment |= {FOLDER: f"{job.folder}{os.sep}{CHECKPOINT}", TIMES: "0"}
        self._in_hand.add(run.attempt)
        on_news, on_end = partial(self._on_news, run.attempt), partial(self._in_hand.discard, run.attempt)
        return AttemptCheckpoints(run, self._tools or self._open(), self.agent, on_news, on_end)

    def report(self, draft: DraftReport) -> None:
        """Add the news that the master has not acknowledged."""
        if self._news:
            life = self.agent.life
            self._drafted = [one for one in self._news.values() if one.life == life][:MAX_PER_REPORT]
            draft.checkpoints = CheckpointReport(
                tuple(one.what for one in self._drafted if isinstance(one.what, TakenCheckpoint)),
                tuple(one.attempt for one in self._drafted if one.what is None),
                tuple(one.what for one in self._drafted if isinstance(one.what, RefusedCheckpoint)),
            )

    def reported(self, seq: int) -> None:
        """Note the number of the Report with these news."""
        for one in self._drafted:
            one.seq = one.seq or seq
        self._drafted = []

    def assign(self, assign: Assign) -> None:
        """Forget the news that this acknowledges."""
        if self._news:
            self._news = {key: one for key, one in self._news.items() if not 0 < one.seq <= assign.seen}

    def make_room(self, wanted_bytes: int) -> None:
        """Remove checkpoints of tasks that do not run here."""
        if wanted_bytes > 0:
            self._store.make_room(wanted_bytes, self._in_hand)

    def close(self) -> None:
        """End all threads."""
        if self._tools:
            self._tools.close()
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGURG)

    def _open(self) -> CheckpointTools:
        self._tools, self.is_awake = self._make_tools(), True
        with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # readers check by themselves
            asyncio.get_running_loop().add_signal_handler(signal.SIGURG, self._tools.check_leases)
        return self._tools

    def _on_news(self, attempt: AttemptId, what: TakenCheckpoint | RefusedCheckpoint | None) -> None:
        if isinstance(what, TakenCheckpoint):
            self._news.pop((attempt, RefusedCheckpoint), None)
        self._news[attempt, type(what)] = _News(attempt, self.agent.life, what)
        self.agent.speak()
