"""What a command is about: a job such as 12, or one of its tasks such as 12.3."""

from __future__ import annotations

from typing import Annotated

from loopline.cli.common import read_by
from shared.model import MAX_ID, TaskId


def subject(text: str) -> TaskId | int:
    """``12`` or ``12.3``; ValueError for anything else."""
    try:
        read = TaskId.parse(text) if "." in text else int(text)
    except ValueError:
        raise ValueError(f"expected a job such as 12, or a task such as 12.3, got {text!r}") from None
    if not 1 <= min(read if isinstance(read, TaskId) else (read,)) <= MAX_ID:
        raise ValueError(f"jobs and tasks are numbered from 1, got {text!r}")
    return read


def job(text: str) -> int:
    read = subject(text)
    if isinstance(read, TaskId):
        raise ValueError(f"expected a job such as {read.job}, got the task {text!r}")
    return read


def task(text: str) -> TaskId:
    read = subject(text)
    if isinstance(read, int):
        raise ValueError(f"expected a task such as {read}.1, got the job {text!r}")
    return read


Subject = Annotated[TaskId | int, read_by(subject)]
Job = Annotated[int, read_by(job)]
Task = Annotated[TaskId, read_by(task)]
