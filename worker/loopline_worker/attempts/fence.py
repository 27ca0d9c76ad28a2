"""The agent's wing that fences attempts: a silent worker ends some, because they must not run in two places.

The master gives such an attempt a term. After a silence of the term and a margin, another attempt may take its place.
The worker counts the term from the *sending* of the last answered Report, so the attempt ends earlier. The supervisor
keeps the time, because the agent may hang. For a call, the interpreter's supervisor keeps it while the call runs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline_shared.model import AttemptId
    from loopline_shared.protocol.worker_link import Assign, Run
    from loopline_worker.launch.interface import Job, Tree

CAN_FENCE = sys.platform == "linux"


class Fence(AgentWing):
    """Tells the supervisors of fenced attempts when their terms end."""

    concerns = ("term_s",)

    def __init__(self, answered_at: Callable[[], float]) -> None:
        """``answered_at`` returns when the last answered Report was sent, by ``boot_s``."""
        self._answered_at = answered_at
        self._fenced: dict[AttemptId, FencedAttempt] = {}

    def prepare(self, run: Run, job: Job) -> FencedAttempt | None:
        """Return the part of an attempt with a term."""
        if run.term_s is None or not CAN_FENCE:
            return None
        self.is_awake = True
        part = FencedAttempt(job, run.term_s, lambda: self._fenced.pop(run.attempt, None))
        part.extend(self._answered_at())
        self._fenced[run.attempt] = part
        return part

    def assign(self, assign: Assign) -> None:
        """Extend the terms from the sending of the Report that this answers."""
        for part in self._fenced.values():
            part.extend(self._answered_at())


class FencedAttempt(AttemptPart):
    """An attempt with a term."""

    def __init__(self, job: Job, term_s: float, on_end: Callable[[], object]) -> None:
        self._job, self._term_s, self._on_end = job, term_s, on_end
        self._tree: Tree | None = None

    def started(self, tree: Tree) -> None:
        """Take the tree. The term may have been extended since its order was sent."""
        if self._job.ends_at is not None:
            self._tree = tree
            tree.extend(self._job.ends_at)

    def extend(self, answered_at: float) -> None:
        """Count the term from the sending of another Report."""
        self._job.ends_at = answered_at + self._term_s
        if self._tree:
            self._tree.extend(self._job.ends_at)

    def after_end(self) -> None:
        """Forget the attempt."""
        self._on_end()
