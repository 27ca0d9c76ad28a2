"""What a command is about: a job such as 12, or one of its tasks such as 12.3."""

from __future__ import annotations

import re
from typing import Annotated

from loopline.cli.common import read_by
from loopline_shared.model import MAX_ID, TaskId


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


def subject_or_worker(text: str) -> TaskId | int | str:
    """``12``, ``12.3``, or else a worker's name; ValueError for what is none of these."""
    if text.replace(".", "").isdigit():
        return subject(text)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError(f"expected a job such as 12, a task such as 12.3, or a worker's name, got {text!r}")
    return text


SubjectOrWorker = Annotated[TaskId | int | str, read_by(subject_or_worker)]
Subject = Annotated[TaskId | int, read_by(subject)]
Job = Annotated[int, read_by(job)]
Task = Annotated[TaskId, read_by(task)]
