"""The progress of running tasks, as their programs tell it: shown to users and used for ETAs.

It comes with Reports and is no part of the scheduler's state: no decision depends on it, no row has it, and after a
restart of the master the next Reports bring it again.
"""

from __future__ import annotations

from typing import TypeVar

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, TaskId
from loopline_shared.protocol.worker_link import Report
from loopline_shared.rest.bodies import TaskView

View = TypeVar("View", bound=TaskView)


class TaskProgress:
    """The latest progress of each attempt whose worker is connected: from 0 to 1 of its whole task."""

    def __init__(self) -> None:
        self._of: dict[str, dict[AttemptId, float]] = {}  # by worker

    def note(self, worker: str, report: Report) -> None:
        """Take in a Report."""
        told = {held.attempt: held.progress for held in report.holding if held.progress is not None}
        if told:
            self._of[worker] = told
        else:
            self._of.pop(worker, None)

    def left(self, worker: str) -> None:
        """Forget a worker whose link has ended."""
        self._of.pop(worker, None)

    def shown(self, state: State, task: View) -> View:
        """Return a task with its progress."""
        told = self.of_task(state, task.id)
        return task if told is None else task.model_copy(update={"progress": told})

    def of_task(self, state: State, task: TaskId) -> float | None:
        """Return the largest progress among the running attempts at a task; None if none tells any."""
        attempts = state.index.attempts.of_task.get(task) if self._of else None
        told = (self._of.get(attempt.worker, {}).get(attempt.id) for attempt in (attempts or {}).values())
        return max((one for one in told if one is not None), default=None)

    def of_job(self, state: State, job: Job) -> float | None:
        """Return the part of its tasks that is done, running tasks by their progress; None if none tells any."""
        in_memory = state.index.ready_sets.get(job.id) if self._of else None
        of_tasks = (self.of_task(state, job.task_id(number)) for number in (in_memory.kept if in_memory else ()))
        told = [progress for progress in of_tasks if progress is not None]
        over = job.succeeded + job.failed
        return min(1.0, (over + sum(told)) / job.task_count) if told else None

    def of_running(self, state: State) -> dict[AttemptId, float]:
        """Return the progress of all attempts that their workers really have."""
        attempts = state.attempts
        return {
            number: progress
            for worker, told in self._of.items()
            for number, progress in told.items()
            if (attempt := attempts.get(number)) and attempt.worker == worker
        }
