"""Phrases that explanations are made of: durations, counts, sizes of jobs, and tasks that are left."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Job
from loopline_shared.model import SizeSource


def spoken(seconds: float) -> str:
    """Return a duration for people, as ``45 s``, ``40 min`` or ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def size_of(job: Job) -> str:
    """Return the size of a job in words, and its source if the user did not give it."""
    if job.size is None:
        return "size unknown"
    source = ", as predicted when it was submitted" if job.size_source is SizeSource.PREDICTED else ""
    return f"size {spoken(job.size)}{source}"


def tasks_left(job: Job, whose: str = "") -> str:
    """Return the number of tasks left in words; ``whose``: the job in words, in a sentence about another one."""
    left, total = job.task_count - job.succeeded - job.failed, job.task_count
    of = whose and f" {whose}"
    if total == 1:
        return f"the only task{of} is left"
    which = "all" if left == total else f"{left} of the"
    return f"{which} {total} tasks{of} {'is' if left == 1 else 'are'} left"
