"""Effects of a step: rows to store, replies, and frames to send once the rows are on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.runs import ProgramKey
from loopline_master.core.wings.exemptions.exemption import Exemption
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import BrokenPromise, Plan
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.transfers.carrier import Carrier, NumberedRequest
from loopline_shared.errors import ExceededLimit
from loopline_shared.model import AttemptId, Result, TaskId
from loopline_shared.protocol.worker_link import Assign


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out (or had nothing to do)."""


@dataclass(frozen=True, slots=True)
class Submitted:
    job: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """Reply to a request that was refused and changed nothing. ``status`` is HTTP's."""

    status: int
    code: str
    message: str
    hint: str = ""
    quota: ExceededLimit | None = None


Reply = Done | Submitted | Declined


@dataclass(slots=True, init=False)
class Effects:
    """Changed entities are the scheduler's own objects: read them before the next step."""

    grid: Grid
    replies: list[Reply]  # one an event, in order
    jobs: dict[int, Job]
    tasks: dict[TaskId, Task]
    attempts: dict[AttemptId, Attempt]
    workers: dict[str, Worker]
    users: dict[str, User]
    programs: dict[ProgramKey, Program]
    gangs: dict[AttemptId, Gang]
    disbanded: list[AttemptId]  # gangs
    plans: dict[TaskId, Plan]
    broken: list[BrokenPromise]  # to be told to those whose jobs they concern
    carriers: dict[str, Carrier]
    asked: NumberedRequest | None  # a plan of transfers is to be made, and to come back as TransfersPlanned
    forgotten: list[ProgramKey]  # programs; one may have been learnt of anew since
    forgotten_jobs: tuple[int, ...]  # which ended long ago: their rows go
    gone: tuple[str, ...]  # workers that were away, and are forgotten with the end of the step
    exemptions: list[Exemption]
    completed: list[int]  # jobs that succeeded or failed: to be audited
    mismatches: list[TaskId]  # tasks of which two results turned out to differ
    overstated: list[tuple[str, AttemptId]]  # (worker, attempt): figures of its result were far from possible
    late: list[tuple[str, Result]]
    """(worker, result) of attempts no longer in memory; where the row says *lost*, it is recorded there."""
    assigns: dict[str, Assign]  # by worker, for its open link
    closes: list[tuple[str, int]]  # (worker, session): links to close

    def __init__(self, grid: Grid, **rows: Any) -> None:
        """Begin with no effects but these rows: written out, for each step makes one, and factories are dear."""
        self.grid, self.asked, self.forgotten_jobs, self.gone = grid, None, (), ()
        self.replies, self.disbanded, self.broken, self.forgotten, self.exemptions = [], [], [], [], []
        self.completed, self.mismatches, self.overstated, self.late, self.closes = [], [], [], [], []
        self.jobs, self.tasks, self.attempts, self.workers, self.users = {}, {}, {}, {}, {}
        self.programs, self.gangs, self.plans, self.carriers, self.assigns = {}, {}, {}, {}, {}
        for name, value in rows.items():
            setattr(self, name, value)
