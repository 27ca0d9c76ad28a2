"""Phrases that explanations are made of: durations, counts, and sizes of jobs."""

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
