"""Unfinished jobs by user, those outside the grid included: what a user may have at once is limited."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Job


@dataclass(slots=True)
class UserJobs:
    """Counts of unfinished jobs, of their tasks, and of the bytes of their specs, by user."""

    jobs: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    spec_bytes: dict[str, int] = field(default_factory=dict)
    entered: dict[int, tuple[str, int, int]] = field(default_factory=dict)  # by job: its user, its tasks, and bytes

    def place(self, job: Job) -> None:
        """Enter a job as it is now; one that is over leaves."""
        number = job.id
        if (number in self.entered) is not job.is_over:  # as most often: it is entered, and goes on
            return
        if job.is_over:
            self._count(*self.entered.pop(number), -1)
        else:
            self.entered[number] = job.owner, job.task_count, job.spec_bytes
            self._count(*self.entered[number], 1)

    def _count(self, owner: str, tasks: int, spec_bytes: int, sign: int) -> None:
        self.jobs[owner] = self.jobs.get(owner, 0) + sign
        self.tasks[owner] = self.tasks.get(owner, 0) + sign * tasks
        self.spec_bytes[owner] = self.spec_bytes.get(owner, 0) + sign * spec_bytes
        if not self.jobs[owner]:
            del self.jobs[owner], self.tasks[owner], self.spec_bytes[owner]
