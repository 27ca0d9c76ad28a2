"""Failed and cancelled jobs that their users retried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loopline_master.core.events import JobRetried
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job, Task
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_shared.model import JobState, TaskState

_UNSUCCESSFUL = (TaskState.FAILED, TaskState.CANCELLED)


class Retriable:
    """Rows of jobs that will be retried, as they are in the replay. Jobs go by their numbers in the recording."""

    def __init__(self, recorded: Iterable[int]) -> None:
        self._jobs: dict[int, Job | None] = dict.fromkeys(recorded)
        self._tasks: dict[int, dict[int, Task]] = {job: {} for job in self._jobs}
        self._overdue: set[int] = set()

    def note(self, effects: Effects, recorded_as: Mapping[int, int]) -> list[int]:
        """Return the jobs that have ended now and whose retry is overdue."""
        if not self._jobs:
            return []
        for job in effects.jobs.values():
            if (recorded := recorded_as.get(job.id)) in self._jobs:
                self._jobs[recorded] = job
        for task in effects.tasks.values():
            if (recorded := recorded_as.get(task.job)) in self._jobs:
                self._tasks[recorded][task.number] = task
        return [job for job in sorted(self._overdue) if self._is_retriable(job)]

    def event(self, recorded: int) -> JobRetried | None:
        """Return the job's retry; None if it must wait or there is nothing to do."""
        self._overdue.discard(recorded)
        job = self._jobs[recorded]
        if job is None or not self._is_retriable(recorded):
            self._overdue.add(recorded)
            return None
        tasks = self._tasks[recorded].values()
        succeeded = IntervalSet.of(task.number for task in tasks if task.state is TaskState.SUCCEEDED)
        return JobRetried(job, [task for task in tasks if task.state in _UNSUCCESSFUL], succeeded.pairs())

    def _is_retriable(self, recorded: int) -> bool:
        job = self._jobs[recorded]
        return job is not None and job.state in (JobState.FAILED, JobState.CANCELLED)
