"""Forgotten jobs: their rows go, and what was used for them stays as sums, by user and by worker, for each day.

A job counts for the day on which it ended, with all of its attempts. So the sums of several days are exact, the
numbers of jobs included. Workers that are forgotten themselves count together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, func, literal_column, select

from loopline_master.store.queries.usage_queries import NAMES, SUMS
from loopline_master.store.rows import insert_into
from loopline_master.store.tables import (
    attempts,
    audits,
    exemptions,
    forecasts,
    gangs,
    jobs,
    notifications,
    passings,
    plans,
    removals,
    specs,
    tasks,
    usage,
    workers,
)

DAY_S = 86400
_OF_JOBS = (attempts, tasks, specs, plans, gangs, forecasts, removals, exemptions, passings, audits, notifications)
"""Tables with rows of jobs, in an order that foreign keys allow."""
_known = func.coalesce(workers.c.name, literal_column("''"))


def expired(connection: Connection, before: float, after: int, limit: int) -> list[tuple[int, int]]:
    """Return the next jobs after one that ended before this moment, each with the number of its tasks.

    A job that passed another one without an excuse stays, as the evidence.
    """
    is_evidence = exists().where(
        (passings.c.job == jobs.c.id) | (passings.c.passed == jobs.c.id), passings.c.reason.is_(None)
    )
    query = select(jobs.c.id, jobs.c.task_count).where(jobs.c.departure.is_not(None), jobs.c.finished_at < before)
    rows = connection.execute(query.where(jobs.c.id > after, ~is_evidence).order_by(jobs.c.id).limit(limit))
    return [(row.id, row.task_count) for row in rows]


def forget(connection: Connection, gone: Sequence[int]) -> None:
    """Sum up what was used for these jobs, and delete all of their rows."""
    for kind, name in (("user", jobs.c.owner), ("worker", _known)):
        _add_up(connection, kind, name, gone)
    connection.execute(delete(passings).where(passings.c.passed.in_(gone)))
    for table in _OF_JOBS:
        connection.execute(delete(table).where(table.c.job.in_(gone)))
    connection.execute(delete(jobs).where(jobs.c.id.in_(gone)))


def _add_up(connection: Connection, kind: str, name: ColumnElement[str], gone: Sequence[int]) -> None:
    query = select(name, jobs.c.finished_at, *SUMS).join_from(attempts, jobs, jobs.c.id == attempts.c.job)
    query = query.outerjoin(workers, workers.c.name == attempts.c.worker)
    query = query.where(jobs.c.id.in_(gone), attempts.c.ended_at.is_not(None)).group_by(name, jobs.c.id)
    sums: dict[tuple[str, int], dict[str, Any]] = {}
    for row in connection.execute(query):
        key = {"kind": kind, "name": row[0], "day": int(row.finished_at // DAY_S)}
        line = sums.setdefault((key["name"], key["day"]), key | dict.fromkeys(NAMES, 0))
        line["jobs"] += 1
        for column in SUMS:
            line[column.name] += getattr(row, column.name)
    if sums:
        connection.execute(_adding(connection.dialect.name), list(sums.values()))


@cache
def _adding(dialect: str) -> Any:
    """Return an INSERT that adds to the sums that are there."""
    statement = insert_into(usage, dialect)
    more = {name: usage.c[name] + statement.excluded[name] for name in NAMES}
    return statement.on_conflict_do_update(index_elements=list(usage.primary_key), set_=more)
