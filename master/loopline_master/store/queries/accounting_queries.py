"""Ledgers as users see them: the counters of a job's row, and the results that came when they had been forgotten."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, func, select

from loopline_master.store.tables import attempts, jobs
from loopline_shared.rest.bodies import Ledger

_late = (attempts.c.job == jobs.c.id, attempts.c.late)  # few: they have an index of their own
LATE = (
    select(func.coalesce(func.sum(attempts.c.cpu_s), 0.0)).where(*_late).scalar_subquery().label("late_cpu_s"),
    select(func.coalesce(func.sum(attempts.c.assumed_cpu_ms), 0)).where(*_late).scalar_subquery().label("late_ms"),
)
"""To be asked for with a job's row: what late results took, and what had been assumed of them."""


def ledger_of(job: Row[Any]) -> Ledger:
    return Ledger(
        useful_cpu_s=job.useful_cpu_ms / 1000,
        replicated_cpu_s=job.replicated_cpu_ms / 1000,
        won_cpu_s=job.won_cpu_ms / 1000,
        wasted_cpu_s=job.wasted_cpu_ms / 1000 + job.late_cpu_s,
        lost_cpu_s=max(0, job.lost_cpu_ms - int(job.late_ms)) / 1000,
    )
