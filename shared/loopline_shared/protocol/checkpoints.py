"""The parts of the worker link that are about checkpoints of tasks.

A checkpoint is a manifest (loopline_shared/protocol/saved_state.py) and its pieces. All of them are files in the
master's store.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import not_
from typing import Annotated

from pydantic import Field

from loopline_shared.model import AttemptId, Count, Name, Progress, Seconds, Sha256

MAX_CHECKPOINT_BYTES = 2**40
DEFAULT_CHECKPOINT_BYTES = 10**9
MAX_LINE = 1000
MAX_PER_REPORT = 1000
MAX_STEP = 10**9 - 1
USUAL_STOP_S = 3600.0
USUAL_LOSS_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Resumption:
    """The checkpoint that an attempt continues from."""

    manifest: Sha256
    times: Annotated[int, Field(ge=1)]  # this is the task's resumption of this number: LOOPLINE_RESUMED
    cpu_s: Seconds  # CPU time in it, from the beginning of the task
    wall_s: Seconds  # time that its attempts ran until it was taken, from the beginning of the task
    line: Annotated[tuple[Name, ...], Field(max_length=MAX_LINE)]  # workers that have computed it, each once
    progress: Progress = None


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """A part of a Run: the attempt takes checkpoints, and may continue from one."""

    every_s: Seconds | None = None  # None: as their cost and the next two suggest
    stopped_every_s: Seconds = USUAL_STOP_S  # mean time between interruptions that the worker's disk survives
    lost_every_s: Seconds = USUAL_LOSS_S  # mean time between the others
    exit_code: int | None = None
    max_bytes: Annotated[int, Field(ge=1, le=MAX_CHECKPOINT_BYTES)] = DEFAULT_CHECKPOINT_BYTES
    resume: Resumption | None = None  # None: from the beginning, unless this worker has a newer one
    own: bool = True
    """False if the worker may not use a checkpoint of its own that the master did not name."""


@dataclass(frozen=True, slots=True)
class CheckpointCosts:
    """The costs of all checkpoints of an attempt until now."""

    sent: Count = 0  # checkpoints that were sent to the master
    sent_bytes: Count = 0
    held_s: Seconds = 0.0  # time that the task was stopped for them


NO_COSTS = CheckpointCosts()


@dataclass(frozen=True, slots=True)
class TakenCheckpoint:
    """A checkpoint whose files the master has."""

    attempt: AttemptId
    manifest: Sha256
    size_bytes: Count
    sent_bytes: Count  # uploaded for it; the rest was in the store already
    cpu_s: Seconds  # as in Resumption, this attempt's part included
    wall_s: Seconds
    line: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_LINE)]
    times: Count  # resumptions before it
    costs: CheckpointCosts = NO_COSTS
    progress: Progress = None
    step: Annotated[int | None, Field(ge=0, le=MAX_STEP)] = None  # of a gang's member: its newest folder ``step-N``


@dataclass(frozen=True, slots=True)
class RefusedCheckpoint:
    """The reason why an attempt takes no checkpoints at present. The next TakenCheckpoint ends it."""

    attempt: AttemptId
    reason: Annotated[str, Field(max_length=500)]


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A part of a Report, repeated until that is acknowledged."""

    taken: Annotated[tuple[TakenCheckpoint, ...], Field(max_length=MAX_PER_REPORT, fail_fast=True)] = ()
    spoilt: Annotated[tuple[AttemptId, ...], Field(max_length=MAX_PER_REPORT, fail_fast=True)] = ()
    """Attempts whose checkpoints are not complete, and which are given back for that."""
    refused: Annotated[
        tuple[RefusedCheckpoint, ...], Field(max_length=MAX_PER_REPORT, fail_fast=True, exclude_if=not_)
    ] = ()
