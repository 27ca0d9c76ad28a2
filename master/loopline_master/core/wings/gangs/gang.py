"""The entity of a gang: one launch of a parallel task, apart from the attempts that are its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loopline_shared.model import AttemptId, TaskId


class GangPhase(StrEnum):
    """Phase of a launch."""

    PREPARING = "preparing"  # its members are dispatched; none may begin
    RUNNING = "running"  # the start is set
    HALTED = "halted"  # frozen everywhere: a member is lost, or the owner of its computer is back


PHASES: Mapping[GangPhase, frozenset[GangPhase]] = {  # its row is deleted when the launch is over, in any phase
    GangPhase.PREPARING: frozenset({GangPhase.RUNNING}),
    GangPhase.RUNNING: frozenset({GangPhase.HALTED}),
    GangPhase.HALTED: frozenset({GangPhase.RUNNING}),
}


@dataclass(slots=True)
class Gang:
    """A launch of a parallel task. It assigns an attempt number to each rank, in order."""

    job: int
    task: int
    workers: tuple[str, ...]  # by rank
    slots: int  # on each of them
    since: float  # start of its phase; seconds since 1970
    phase: GangPhase = GangPhase.PREPARING
    first: int = 1  # number of the attempt of rank 0
    rendezvous: str = ""  # host:port at rank 0's worker, once that member is prepared
    culprits: tuple[str, ...] = ()  # workers that caused the halt
    reason: str = ""  # of the halt
    id: Annotated[AttemptId, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    """Id of its member of rank 0: a task with replicas has several launches at a time."""

    def __post_init__(self) -> None:
        self.id = AttemptId(self.job, self.task, self.first)

    @property
    def task_id(self) -> TaskId:
        return TaskId(self.job, self.task)

    def member(self, rank: int) -> AttemptId:
        """Return the id of the attempt that has this rank."""
        return AttemptId(self.job, self.task, self.first + rank)
