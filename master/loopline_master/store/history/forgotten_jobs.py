"""Forgotten jobs: their rows are deleted, and their resources stay as sums by user, by worker and by day.

A job counts for the day of its end, with all its attempts. So the sums of several days are exact, the
numbers of jobs included. Workers that are forgotten themselves count together.

A job with very many tasks is deleted in several transactions, the last tasks first, so that no other write waits
long. Their resources are summed up in the same transaction, so that a killed master continues where it stopped. Such
a job is marked in the table of removals, and is not retried any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, literal_column, select

from loopline_master.store.database import shrink
from loopline_master.store.history.attempt_sums import USED, of_checkpoints
from loopline_master.store.history.energy_sums import keep_energy
from loopline_master.store.history.job_sums import shorten_sums
from loopline_master.store.queries.usage_queries import NAMES
from loopline_master.store.rows import insert_into
from loopline_master.store.tables import (
    attempts,
    audits,
    checkpoint_accounts,
    checkpoints,
    energies,
    evidence,
    exemptions,
    flaws,
    forecasts,
    gangs,
    job_sums,
    jobs,
    notifications,
    passings,
    plans,
    removals,
    resumptions,
    specs,
    tasks,
    usage,
    worker_sums,
    workers,
)

DAY_S = 86400
FORGOTTEN = "its tasks are being forgotten"
"""The reason in ``removals`` that marks a partly removed job."""
_OF_JOBS = (
    *(
        attempts,
        tasks,
        specs,
        plans,
        gangs,
        forecasts,
        removals,
        checkpoints,
        resumptions,
        checkpoint_accounts,
        energies,
        evidence,
        flaws,
        exemptions,
        passings,
        audits,
        notifications,
    ),
    *(worker_sums, job_sums),
)
"""Tables with rows of jobs, in an order that foreign keys allow."""
_is_its = workers.c.name == attempts.c.worker
_known = func.coalesce(workers.c.name, literal_column("''"))


def expired(connection: Connection, before: float, after: int, limit: int) -> list[tuple[int, int]]:
    """Return the next jobs after ``after`` that ended before this time, each with its number of tasks.

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
    here = jobs.c.id.in_(gone)
    for kind, name in (("user", jobs.c.owner), ("worker", _known)):
        _add_up(connection, kind, (dict(row._mapping, jobs=1) for row in _used(connection, name, here)))
        _add_up(connection, kind, _by_checkpoints(connection, name, here))
        keep_energy(connection, kind, name, here)
    connection.execute(delete(passings).where(passings.c.passed.in_(gone)))
    for table in _OF_JOBS:
        connection.execute(delete(table).where(table.c.job.in_(gone)))
    connection.execute(delete(jobs).where(jobs.c.id.in_(gone)))


def first_tasks(connection: Connection, job: int) -> dict[str, int]:
    """Return the first task of a job that each worker has tried, by its name; "" for forgotten workers.

    The job counts for a worker in the transaction that deletes that task.
    """
    query = select(_known, func.min(attempts.c.task)).join_from(attempts, workers, _is_its, isouter=True)
    rows = connection.execute(query.where(attempts.c.job == job, attempts.c.ended_at.is_not(None)).group_by(_known))
    return dict(rows.all())


def shorten(connection: Connection, job: int, most: int, now: float, first: Mapping[str, int]) -> bool:
    """Sum up and delete the last ``most`` tasks of an ended job that have rows. False if there were fewer: they stay.

    ``first``: as ``first_tasks`` says; by it the job counts once for each worker, and for its user.
    """
    numbers = select(tasks.c.number).where(tasks.c.job == job)
    least = connection.scalar(numbers.order_by(tasks.c.number.desc()).offset(most - 1).limit(1))
    if least is None:
        return False
    _mark(connection, job, now)
    here = and_(jobs.c.id == job, attempts.c.task >= least)
    of_user = min(first.values(), default=0) >= least
    _add_up(connection, "user", (dict(row._mapping, jobs=of_user) for row in _used(connection, jobs.c.owner, here)))
    used = _used(connection, _known, here)
    _add_up(connection, "worker", (dict(row._mapping, jobs=first.get(row.subject, 0) >= least) for row in used))
    for kind, name in (("user", jobs.c.owner), ("worker", _known)):
        _add_up(connection, kind, _by_checkpoints(connection, name, here))
        keep_energy(connection, kind, name, here)
    shorten_sums(connection, job, least)
    for table in (checkpoint_accounts, energies, attempts):
        connection.execute(delete(table).where(table.c.job == job, table.c.task >= least))
    connection.execute(delete(tasks).where(tasks.c.job == job, tasks.c.number >= least))
    shrink(connection)
    return True


def _mark(connection: Connection, job: int, now: float) -> None:
    statement = insert_into(removals, connection.dialect.name).values(job=job, at=now, reason=FORGOTTEN)
    connection.execute(statement.on_conflict_do_update(index_elements=["job"], set_={"reason": FORGOTTEN}))


def _used(connection: Connection, name: ColumnElement[str], here: ColumnElement[bool]) -> Iterable[Row[Any]]:
    query = select(name.label("subject"), jobs.c.finished_at, *USED)
    query = query.join_from(attempts, jobs, jobs.c.id == attempts.c.job).outerjoin(workers, _is_its)
    query = query.where(here, attempts.c.ended_at.is_not(None))
    return connection.execute(query.group_by(name, jobs.c.id))


def _by_checkpoints(
    connection: Connection, name: ColumnElement[str], here: ColumnElement[bool]
) -> Iterable[dict[str, Any]]:
    query = of_checkpoints(name).add_columns(jobs.c.finished_at).outerjoin(workers, _is_its)
    return [dict(row._mapping) for row in connection.execute(query.where(here).group_by(jobs.c.id))]


def _add_up(connection: Connection, kind: str, used: Iterable[Mapping[str, Any]]) -> None:
    sums: dict[tuple[str, int], dict[str, Any]] = {}
    for row in used:
        key = {"kind": kind, "name": row["subject"], "day": int(row["finished_at"] // DAY_S)}
        line = sums.setdefault((key["name"], key["day"]), key | dict.fromkeys(NAMES, 0))
        for name in NAMES:
            line[name] += row.get(name, 0)
    if sums:
        connection.execute(_adding(connection.dialect.name), list(sums.values()))


@cache
def _adding(dialect: str) -> Any:
    """Return an INSERT that adds to the sums that are there."""
    statement = insert_into(usage, dialect)
    more = {name: usage.c[name] + statement.excluded[name] for name in NAMES}
    return statement.on_conflict_do_update(index_elements=list(usage.primary_key), set_=more)
