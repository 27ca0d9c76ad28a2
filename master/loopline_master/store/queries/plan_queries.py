"""Plans of gangs as users see them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from loopline_master.store.tables import plans
from loopline_shared.rest.bodies import PlanView

_LATEST = (
    select(plans)
    .where(plans.c.job == bindparam("of_job"), plans.c.withdrawn_at.is_(None))
    .order_by(plans.c.started_at.is_not(None), plans.c.told_at.desc(), plans.c.task.desc())
    .limit(1)
)
"""The plan of a job's gang that waits, else of the one that started last."""


def plan_of_job(connection: Connection, job: int) -> PlanView | None:
    """Return the plan of a job's next gang, or of the last that has started; None if it has none."""
    row = connection.execute(_LATEST, {"of_job": job}).one_or_none()
    return None if row is None else _view(row)


def _view(row: Row[Any]) -> PlanView:
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
        started_at=row.started_at,
    )
