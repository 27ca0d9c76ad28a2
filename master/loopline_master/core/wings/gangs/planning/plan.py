"""Plans of waiting gangs: the starts given to their users, and the changes since then."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from loopline_master.core.wings.gangs.planning.horizon import MARGIN_S, PREPARE_S
from loopline_shared.model import TaskId

BROKEN = "promise_broken"
"""Name of the notification of a broken promise."""


class PlanKind(StrEnum):
    """A promise if all work that the gang waits for has limits; otherwise an estimate."""

    PROMISE = "promise"
    ESTIMATE = "estimate"


@dataclass(slots=True)
class Plan:
    """Start and workers planned for a gang. One row for each task, kept after its start.

    Times are in seconds since 1970. A plan that has started or was withdrawn is no longer in the scheduler's memory.
    """

    job: int
    task: int
    start: float | None  # planned; of an estimate, by p90 of the work it waits for; None: too few workers are there
    machines: tuple[str, ...]  # workers, by rank
    slots: int  # on each
    limit_s: float  # of the gang's run time, or (predicted) of the time that its place is kept
    is_given: bool  # the limit is its user's; otherwise predicted, with a margin
    kind: PlanKind
    told_at: float  # time of the first plan
    first_start: float | None  # ... its start, or that of the first plan with one
    p50: float | None = None  # of an estimate ...
    p90: float | None = None
    earliest: float = 0.0  # the jobs that it may not pass are expected to be over by then ...
    earliest_p50: float = 0.0
    is_bounded: bool = True  # ... because they have limits
    behind: int | None = None  # arrival of the first of them
    changed_at: float | None = None  # time of the last move
    moves: int = 0  # forward
    broken: int = 0  # broken promises
    reason: str = ""  # of the last change
    promised: float | None = None  # the first start that was a promise
    broken_reason: str = ""  # of the last broken promise
    first_p50: float | None = None  # of the first plan, if that was an estimate
    sets_aside: bool = False  # it is due, and units of its limits are set aside for it
    delays: int = 0  # number of times that an estimate was late: work ahead of it took longer than its p90
    started_at: float | None = None
    withdrawn_at: float | None = None  # its job was cancelled or paused before its start
    id: Annotated[TaskId, Field(exclude=True)] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.id = TaskId(self.job, self.task)

    @property
    def is_promise(self) -> bool:
        return self.kind is PlanKind.PROMISE

    @property
    def is_over(self) -> bool:
        """True if the gang has started, or is no longer planned."""
        return self.started_at is not None or self.withdrawn_at is not None


def in_order_of_claims(plan: Plan) -> tuple[bool, float, int]:
    """Order in which plans take their slots again: an estimate, however early, never takes a promise's room."""
    return not plan.is_promise, plan.start or 0.0, plan.job


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A broken promise: the promised start, the new one, and the reason."""

    job: int
    task: int
    start: float
    new_start: float | None  # None: no workers can run it now
    reason: str
    at: float
    number: int = 0  # in the sequence of arrivals and departures
    is_notified: bool = False  # its user asked for a notification


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that waits for its start."""

    job: int
    task: int
    nodes: int
    slots: int
    limit_s: float
    is_given: bool
    needs: Hashable  # the requirement class of its job
    turn: tuple[float, float, int]  # order of planning
    earliest: float = 0.0  # the jobs that it may not pass are over by then ...
    half: float = 0.0  # ... this is the median
    is_bounded: bool = True  # ... because they have limits
    behind: int | None = None  # arrival of the first of them
    holds_units: bool = False  # of limits, or of ``resources``: their ends by limits are not planned
    resources: frozenset[str] = frozenset()  # of its workers
    lacks: frozenset[str] = frozenset()  # its limits, if they are used up and holders are expected to end
    must_pass: bool = False  # they are used up, and nothing may be set aside for it now


def steps_of(limit_s: float) -> int:
    """Return the seconds for which a gang's place is kept: its limit, and a margin for its start and its end."""
    return int(-(-limit_s // 1)) + MARGIN_S + PREPARE_S


def plan_of(one: WaitingGang, now: float) -> Plan:
    """Return the plan of a new gang, still without a start."""
    return Plan(
        job=one.job,
        task=one.task,
        start=None,
        machines=(),
        slots=one.slots,
        limit_s=one.limit_s,
        is_given=one.is_given,
        kind=PlanKind.ESTIMATE,
        told_at=now,
        first_start=None,
        earliest=one.earliest,
        earliest_p50=one.half,
        is_bounded=one.is_bounded,
        behind=one.behind,
    )
