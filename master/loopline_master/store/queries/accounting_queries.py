"""Accounting as users see it: the counters of a job's row, and results that came after their job had been
forgotten.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Row, func, select

from loopline_master.store.tables import attempts, checkpoint_accounts, jobs
from loopline_shared.rest.bodies import JobAccounting

_late = (attempts.c.job == jobs.c.id, attempts.c.late)  # few: there is an index for them
LATE = (
    select(func.coalesce(func.sum(attempts.c.cpu_s), 0.0)).where(*_late).scalar_subquery().label("late_cpu_s"),
    select(func.coalesce(func.sum(attempts.c.assumed_cpu_ms), 0)).where(*_late).scalar_subquery().label("late_ms"),
)
"""Columns to be selected with a job's row: CPU time of late results, and the time assumed for them before."""


def _of_checkpoints(column: str) -> ColumnElement[Any]:
    of_job = select(func.coalesce(func.sum(checkpoint_accounts.c[column]), 0))
    return of_job.where(checkpoint_accounts.c.job == jobs.c.id).scalar_subquery().label(f"checkpoint_{column}")


CHECKPOINTS = tuple(map(_of_checkpoints, ("kept_cpu_ms", "sent", "sent_bytes", "held_s")))
"""Columns likewise: savings and costs of its checkpoints."""


def accounting_of(job: Row[Any]) -> JobAccounting:
    """Return the accounting of a job from its row."""
    return JobAccounting(
        useful_cpu_s=job.useful_cpu_ms / 1000,
        replicated_cpu_s=job.replicated_cpu_ms / 1000,
        won_cpu_s=job.won_cpu_ms / 1000,
        wasted_cpu_s=job.wasted_cpu_ms / 1000 + job.late_cpu_s,
        lost_cpu_s=max(0, job.lost_cpu_ms - int(job.late_ms)) / 1000,
        kept_cpu_s=int(job.checkpoint_kept_cpu_ms) / 1000,
        checkpoints=int(job.checkpoint_sent),
        checkpoint_bytes=int(job.checkpoint_sent_bytes),
        checkpoint_held_s=job.checkpoint_held_s,
    )
