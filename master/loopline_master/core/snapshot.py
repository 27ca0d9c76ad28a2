"""Snapshot: the stored rows of the kernel and of all wings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount, ResumedAttempt, SavedCheckpoint
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.transfers.carrier import Carrier

Entity = TypeVar("Entity")


@dataclass(slots=True)
class Snapshot:
    """Stored rows of unfinished work."""

    grid: Grid = field(default_factory=Grid)
    jobs: list[Job] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    started: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    gangs: list[Gang] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)  # of gangs that wait
    carriers: list[Carrier] = field(default_factory=list)
    users: list[User] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    resumed: list[ResumedAttempt] = field(default_factory=list)
    checkpoint_accounts: list[CheckpointAccount] = field(default_factory=list)
    sleepers: list[Sleeper] = field(default_factory=list)

    def of(self, kind: type[Entity]) -> list[Entity]:
        """Return the rows of a wing's entities of this class."""
        found: dict[type, list[Any]] = {
            Gang: self.gangs, Plan: self.plans, Carrier: self.carriers, User: self.users, Limit: self.limits,
            SavedCheckpoint: self.checkpoints, ResumedAttempt: self.resumed,
            CheckpointAccount: self.checkpoint_accounts, Sleeper: self.sleepers,
        }  # fmt: skip
        return found[kind]
