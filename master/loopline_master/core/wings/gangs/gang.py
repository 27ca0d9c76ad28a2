"""The entity of a gang: what is kept of one launch of a parallel task beside the attempts that are its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loopline_shared.model import AttemptId, TaskId


class GangPhase(StrEnum):
    """Phase of a launch."""

    PREPARING = "preparing"  # its members were dispatched; none may begin
    RUNNING = "running"  # the start was named
    HALTED = "halted"  # frozen everywhere: a member is lost, or the owner of its computer came back


PHASES: Mapping[GangPhase, frozenset[GangPhase]] = {  # its row goes when the launch is over, in whichever phase
    GangPhase.PREPARING: frozenset({GangPhase.RUNNING}),
    GangPhase.RUNNING: frozenset({GangPhase.HALTED}),
    GangPhase.HALTED: frozenset({GangPhase.RUNNING}),
}


@dataclass(slots=True)
class Gang:
    """A launch of a parallel task. It hands out an attempt number for each rank, in order."""

    job: int
    task: int
    workers: tuple[str, ...]  # by rank
    slots: int  # on each of them
    since: float  # of its phase; seconds since 1970
    phase: GangPhase = GangPhase.PREPARING
    first: int = 1  # number of the attempt of rank 0
    rendezvous: str = ""  # host:port at rank 0's worker, once that is prepared
    culprits: tuple[str, ...] = ()  # workers because of which it is halted
    reason: str = ""  # why it is halted
    id: Annotated[AttemptId, Field(exclude=True)] = field(init=False, repr=False, compare=False)
    """That of its member of rank 0: a task that asks for replicas has several launches at a time."""

    def __post_init__(self) -> None:
        self.id = AttemptId(self.job, self.task, self.first)

    @property
    def task_id(self) -> TaskId:
        return TaskId(self.job, self.task)

    def member(self, rank: int) -> AttemptId:
        """Return the id of the attempt that has this rank."""
        return AttemptId(self.job, self.task, self.first + rank)
