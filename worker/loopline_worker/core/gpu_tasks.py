"""The wing for tasks with GPUs: they leave a GPU that the owner needs, or that has failed.

A frozen task keeps its memory on the GPU. So it is preempted after a shorter time than other frozen tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loopline_shared.model import AttemptId, Outcome
from loopline_worker.core.events import WingEvent
from loopline_worker.core.instructions import Instructions
from loopline_worker.core.machine_wing import Handler, MachineWing
from loopline_worker.core.transitions import State


@dataclass(frozen=True, slots=True)
class CheckedGpu(WingEvent):
    """The GPUs of an attempt were read."""

    attempt: AttemptId
    must_leave: str  # why the attempt must leave one of them; empty: it may stay
    frozen_s: float  # limit of a freeze


class GpuTasks(MachineWing):
    """Preempts attempts, which use up none of their task's ``max_attempts``."""

    def handlers(self) -> Mapping[type[WingEvent], Handler]:
        """Return the handler of CheckedGpu."""
        return {CheckedGpu: self._read}

    def _read(self, event: CheckedGpu, now: float, steps: Instructions) -> None:
        attempt, reason = self.machine.attempts.get(event.attempt), event.must_leave
        if attempt is None or attempt.state not in (State.RUNNING, State.FROZEN):
            return
        if attempt.state is State.FROZEN and now - attempt.frozen_at >= event.frozen_s:
            reason = reason or "it was frozen, and its memory on the GPU is the owner's"
        if reason:
            steps.todo.append(self.machine.attempts.end(attempt, Outcome.GIVEN_BACK, reason))
