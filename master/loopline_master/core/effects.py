"""Effects of a step: rows to store, replies, and frames to send once the rows are on disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.gangs.gang import Gang
from loopline_master.core.index.exemptions import Exemption
from loopline_master.core.planning.plan import BrokenPromise, Plan
from loopline_master.core.runs import ProgramKey
from loopline_master.core.shares.user import User
from loopline_master.core.transfers.carrier import Carrier, NumberedRequest
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


@dataclass(slots=True)
class Effects:
    """Changed entities are the scheduler's own objects: read them before the next step."""

    grid: Grid
    replies: list[Reply] = field(default_factory=list)  # one an event, in order
    jobs: dict[int, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    programs: dict[ProgramKey, Program] = field(default_factory=dict)
    gangs: dict[AttemptId, Gang] = field(default_factory=dict)
    disbanded: list[AttemptId] = field(default_factory=list)  # gangs
    plans: dict[TaskId, Plan] = field(default_factory=dict)
    broken: list[BrokenPromise] = field(default_factory=list)  # to be told to those whose jobs they concern
    carriers: dict[str, Carrier] = field(default_factory=dict)
    asked: NumberedRequest | None = None  # a plan of transfers is to be made, and to come back as TransfersPlanned
    forgotten: list[ProgramKey] = field(default_factory=list)  # programs; one may have been learnt of anew since
    forgotten_jobs: tuple[int, ...] = ()  # which ended long ago: their rows go
    gone: tuple[str, ...] = ()  # workers that were away, and are forgotten with the end of the step
    exemptions: list[Exemption] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)  # jobs that succeeded or failed: to be audited
    mismatches: list[TaskId] = field(default_factory=list)  # tasks of which two results turned out to differ
    late: list[tuple[str, Result]] = field(default_factory=list)
    """(worker, result) of attempts no longer in memory; where the row says *lost*, it is recorded there."""
    assigns: dict[str, Assign] = field(default_factory=dict)  # by worker, for its open link
    closes: list[tuple[str, int]] = field(default_factory=list)  # (worker, session): links to close
