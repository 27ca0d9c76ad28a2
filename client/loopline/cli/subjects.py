"""Arguments that name a job such as 12, one of its tasks such as 12.3, or a worker."""

from __future__ import annotations

import re
from typing import Annotated

from loopline.cli.common import read_by
from loopline_shared.model import MAX_ID, TaskId


def subject(text: str) -> TaskId | int:
    """Return the job ``12`` or the task ``12.3``. Raises ValueError for anything else."""
    try:
        read = TaskId.parse(text) if "." in text else int(text)
    except ValueError:
        raise ValueError(f"expected a job such as 12, or a task such as 12.3, got {text!r}") from None
    if not 1 <= min(read if isinstance(read, TaskId) else (read,)) <= MAX_ID:
        raise ValueError(f"jobs and tasks are numbered from 1, got {text!r}")
    return read


def job(text: str) -> int:
    """Return the number of a job. Raises ValueError for anything else."""
    read = subject(text)
    if isinstance(read, TaskId):
        raise ValueError(f"expected a job such as {read.job}, got the task {text!r}")
    return read


def task(text: str) -> TaskId:
    """Return a task. Raises ValueError for anything else."""
    read = subject(text)
    if isinstance(read, int):
        raise ValueError(f"expected a task such as {read}.1, got the job {text!r}")
    return read


def subject_or_worker(text: str) -> TaskId | int | str:
    """Return the job ``12``, the task ``12.3``, or a worker's name. Raises ValueError for anything else."""
    if text.replace(".", "").isdigit():
        return subject(text)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError(f"expected a job such as 12, a task such as 12.3, or a worker's name, got {text!r}")
    return text


SubjectOrWorker = Annotated[TaskId | int | str, read_by(subject_or_worker)]
Subject = Annotated[TaskId | int, read_by(subject)]
JobNumber = Annotated[int, read_by(job)]
TaskNumber = Annotated[TaskId, read_by(task)]
