"""Indexes of policies: one that needs an index of its own makes it from its View."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from loopline_master.core.kernel.entities import Job, Task, Worker


class PolicyIndex(Protocol):
    """A policy's own index, made from a View for what is not in Index, and told of the workers placed anew."""

    def place_worker(self, worker: Worker) -> None: ...


@runtime_checkable
class JobIndex(PolicyIndex, Protocol):
    """A PolicyIndex that is told of tasks and jobs, too.

    Of a job whose counts alone have changed it is told only where ``place_task`` asks for that.
    """

    def place_task(self, task: Task) -> bool:
        """Enter a task as it is now. Return True if its job must be placed anew, too."""

    def place_job(self, job: Job) -> None: ...
