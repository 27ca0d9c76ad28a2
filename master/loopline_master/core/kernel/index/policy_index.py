"""Indexes of policies: a policy that needs an index of its own makes it from its View."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from loopline_master.core.kernel.entities import Job, Task, Worker


class PolicyIndex(Protocol):
    """A policy's own index for facts that Index lacks, made from a View and called for each placed worker."""

    def place_worker(self, worker: Worker) -> None: ...


@runtime_checkable
class JobIndex(PolicyIndex, Protocol):
    """A PolicyIndex that is also called for tasks and jobs.

    For a job with changed counts only, it is called if ``place_task`` returned True.
    """

    def place_task(self, task: Task) -> bool:
        """Enter a task as it is now. Return True if its job must be placed, too."""

    def place_job(self, job: Job) -> None: ...
