"""Gangs that wait for their start, as the plan book is told of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from loopline_master.core.planning.horizon import MARGIN_S, PREPARE_S
from loopline_master.core.planning.plan import Plan, PlanKind


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
    turn: tuple[float, int]  # who is planned first
    earliest: float = 0.0  # the jobs that it may not pass are over by then ...
    half: float = 0.0  # ... this is the median
    is_bounded: bool = True  # ... because they have limits
    behind: int | None = None  # arrival of the first of them


def steps_of(limit_s: float) -> int:
    """Return for how many seconds a gang's place is kept: its limit, and a margin for its start and its end."""
    return int(-(-limit_s // 1)) + MARGIN_S + PREPARE_S


def plan_of(one: WaitingGang, now: float) -> Plan:
    """Return the plan of a gang that has just come, as yet without a start."""
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
