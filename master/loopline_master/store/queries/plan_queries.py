"""Plans of gangs as users see them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select

from loopline_master.core.wings.gangs.planning.horizon import MARGIN_S
from loopline_master.store.tables import jobs, plans, specs
from loopline_shared.rest.bodies import BrokenPlan, PlanReport, PlanView, WaitingPlan, WaitingPlans

_LATEST = (
    select(plans)
    .where(plans.c.job == bindparam("of_job"), plans.c.withdrawn_at.is_(None))
    .order_by(plans.c.started_at.is_not(None), plans.c.told_at.desc(), plans.c.task.desc())
    .limit(1)
)
"""The plan of a job's waiting gang, else of its last started one."""
MOST_PLANS = 1000
"""Most plans in one answer."""
_WAITING = (
    select(plans, specs.c.name, jobs.c.owner)
    .join_from(plans, jobs, jobs.c.id == plans.c.job)
    .join(specs, specs.c.job == plans.c.job)
    .where(plans.c.started_at.is_(None), plans.c.withdrawn_at.is_(None))
    .order_by(plans.c.start.is_(None), plans.c.start, plans.c.job)
    .limit(MOST_PLANS + 1)
)
_LATEST_JUDGED, _MOST_TOLD = 1000, 20
_JUDGED = (
    select(plans)
    .where(or_(plans.c.started_at.is_not(None), plans.c.broken > 0))
    .order_by(plans.c.job.desc(), plans.c.task.desc())
    .limit(_LATEST_JUDGED)
)
"""The plans of the latest gangs that have started, or whose promise was broken."""


def plan_of_job(connection: Connection, job: int) -> PlanView | None:
    """Return the plan of a job's next gang, or of the last that has started; None if it has none."""
    row = connection.execute(_LATEST, {"of_job": job}).one_or_none()
    return None if row is None else _view(row)


def waiting_plans(connection: Connection, now: float) -> WaitingPlans:
    """Return the plans of the gangs that wait, the earliest first."""
    rows = connection.execute(_WAITING).all()
    found = [
        WaitingPlan(**_view(row).model_dump(), job=row.job, name=row.name, user=row.owner)
        for row in rows[:MOST_PLANS]
    ]
    return WaitingPlans(now=now, plans=found, truncated=len(rows) > MOST_PLANS)


def _view(row: Any) -> PlanView:
    return PlanView(
        task=row.task,
        kind=row.kind,
        start_at=row.start,
        p50_at=row.p50,
        p90_at=row.p90,
        machines=list(row.machines),
        slots=row.slots,
        limit_s=row.limit_s,
        limit_is_given=row.is_given,
        told_at=row.told_at,
        first_start_at=row.first_start,
        changed_at=row.changed_at,
        moves=row.moves,
        broken=row.broken,
        reason=row.reason,
        promised_at=row.promised,
        broken_reason=row.broken_reason,
        delays=row.delays,
        started_at=row.started_at,
    )


def kept_plans(connection: Connection) -> PlanReport:
    """Return how the planned starts of the latest gangs were kept."""
    found = connection.execute(_JUDGED).all()
    promised = [row for row in found if row.promised is not None]
    early_s = [row.promised - row.started_at for row in promised if row.started_at is not None]
    estimated = [row for row in found if row.first_p50 is not None and row.started_at is not None]
    return PlanReport(
        promises=len(promised),
        kept=sum(row.broken == 0 for row in promised),
        early_p50_s=median(early_s) if early_s else None,
        broken=[_broken(row) for row in promised if row.broken][:_MOST_TOLD],
        estimates=len(estimated),
        p50_held=_share(row.started_at <= row.first_p50 + MARGIN_S for row in estimated),
        p90_held=_share(row.started_at <= row.first_start + MARGIN_S for row in estimated),
        delayed=sum(row.delays > 0 for row in found),
    )


def _broken(row: Row[Any]) -> BrokenPlan:
    return BrokenPlan(
        job=row.job, task=row.task, promised_at=row.promised, started_at=row.started_at, reason=row.broken_reason
    )


def _share(held: Iterable[bool]) -> float | None:
    each = list(held)
    return sum(each) / len(each) if each else None
