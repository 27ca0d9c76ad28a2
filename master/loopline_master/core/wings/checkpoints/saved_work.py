"""Entities: stored checkpoints, attempts that resumed from one, and the accounts of attempts with checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from loopline_shared.model import AttemptId, TaskId
from loopline_shared.protocol.checkpoints import Resumption


@dataclass(slots=True)
class SavedCheckpoint:
    """A checkpoint of a task whose files are in the store, as one row."""

    job: int
    task: int
    manifest: str  # SHA-256 of the file that lists its pieces (loopline_shared/protocol/saved_state.py)
    attempt: int  # number of the attempt that took it
    worker: str
    line: tuple[str, ...]  # workers that have computed it, each once
    taken_at: float  # as its Report came
    work: float  # contained in it, in reference CPU-seconds
    cpu_s: float  # the same as its workers have measured it, from the beginning of the task
    wall_s: float
    times: int  # resumptions before it
    size_bytes: int
    sent_bytes: int  # uploaded for it; the rest was in the store already
    system: str = ""  # where it can be used (``system_of``); empty: anywhere
    failed_on: tuple[str, ...] = ()  # workers of attempts that failed after they had continued from it, latest last
    progress: float | None = None  # of the task, if it tells any
    step: int | None = None  # of a gang's member: the N of its newest folder ``step-N``; None: of no gang
    task_id: Annotated[TaskId, Field(exclude=True)] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.task_id = TaskId(self.job, self.task)

    @property
    def key(self) -> tuple[int, int, str]:
        return self.job, self.task, self.manifest


@dataclass(slots=True)
class ResumedAttempt:
    """An attempt that resumed from a checkpoint, as one row. Most fields are copies from the checkpoint."""

    job: int
    task: int
    number: int
    manifest: str
    line: tuple[str, ...]
    work: float
    cpu_s: float
    wall_s: float
    times: int  # the number of this resumption, from 1
    progress: float | None = None
    id: Annotated[AttemptId, Field(exclude=True)] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.id = AttemptId(self.job, self.task, self.number)

    def as_told(self) -> Resumption:
        """Return its part of a Run."""
        return Resumption(
            self.manifest, self.times, self.cpu_s, wall_s=self.wall_s, line=self.line, progress=self.progress
        )


@dataclass(slots=True)
class CheckpointAccount:
    """Savings and costs of the checkpoints of an attempt, as one row. Costs are as its worker last reported them."""

    job: int
    task: int
    number: int
    sent: int = 0  # checkpoints that reached the master
    sent_bytes: int = 0
    held_s: float = 0.0  # time that the attempt was stopped for them
    kept_cpu_ms: int = 0
    """CPU time of the attempt in its newest checkpoint, until its task succeeds: then ``passed_cpu_ms``."""
    passed_cpu_ms: int = 0  # ... in the checkpoint that a replica resumed from
    id: Annotated[AttemptId, Field(exclude=True)] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.id = AttemptId(self.job, self.task, self.number)
