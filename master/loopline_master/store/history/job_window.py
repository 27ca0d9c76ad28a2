"""Stretches of a large job that have the attempts of a window of time: its sums say so; others are not read."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from sqlalchemy import Connection, Row, select

from loopline_master.store.history import job_sums
from loopline_master.store.history.job_sums import Tasks
from loopline_master.store.tables import job_sums as sums
from loopline_master.store.tables import jobs


def tasks_in(connection: Connection, job: int, since: float, until: float, most: int) -> list[Tasks]:
    """Return ranges of a job's tasks that contain the attempts of a window, or at least the latest ``most``."""
    count = connection.scalar(select(jobs.c.task_count).where(jobs.c.id == job))
    if count is None:
        return []
    if count < job_sums.LARGE:
        return [(1, count)]
    rows = connection.execute(select(sums).where(sums.c.job == job)).all()
    begin = max(since, _begin_of_latest(rows, since, until, most))
    unseen = [row.piece for row in rows if not _may_show(row, since, until, begin)]
    return job_sums.tasks_without(count, unseen)


def _begin_of_latest(rows: Sequence[Row[Any]], since: float, until: float, most: int) -> float:
    """Return a time since which ``most`` attempts were dispatched, in pieces that began then; else minus infinity."""
    seen = 0
    whole = [row for row in rows if row.dispatched and row.first_dispatched_at >= since]
    for row in sorted(whole, key=lambda row: row.first_dispatched_at, reverse=True):
        seen += row.dispatched if row.last_dispatched_at < until else 0
        if seen >= most:
            return float(row.first_dispatched_at)
    return -inf


def _may_show(row: Row[Any], since: float, until: float, begin: float) -> bool:
    """True if a piece may show attempts: dispatched from ``begin`` on, or on their workers at ``since``."""
    if not row.dispatched or row.first_dispatched_at >= until:
        return False
    if row.last_dispatched_at >= begin:
        return True
    return begin <= since and (row.attempts < row.dispatched or row.last_ended_at >= since)
