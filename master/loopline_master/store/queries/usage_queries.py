"""Usage: processor time of ended attempts, by user, worker or job; of forgotten jobs, as it was summed up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, and_, case, exists, func, literal, select

from loopline_master.store.database import Transact
from loopline_master.store.tables import attempts, jobs, specs, usage
from loopline_shared.model import AttemptState
from loopline_shared.rest.bodies import HistoryLine, HistorySubject

FORGOTTEN_WORKERS = "(forgotten workers)"
_DAY_S = 86400
_STOPPED = (AttemptState.SUCCEEDED, AttemptState.CANCELLED, AttemptState.CANCELLING, AttemptState.RETRACTING)
_other = attempts.alias()
_has_quorum = exists().where(_other.c.job == attempts.c.job, _other.c.task == attempts.c.task, _other.c.asked)
IS_VOTE = and_(~attempts.c.accepted, attempts.c.state == AttemptState.SUCCEEDED, _has_quorum)
"""True for a vote towards a quorum, beside the accepted one; nobody asked for the first, but for another after it."""
_is_loser = and_(~attempts.c.accepted, attempts.c.state.in_(_STOPPED), ~IS_VOTE)
_is_lost = attempts.c.state.in_((AttemptState.FAILED, AttemptState.LOST))


def _cpu_s(of: ColumnElement[bool]) -> ColumnElement[float]:
    return func.sum(case((of, attempts.c.cpu_s), else_=0.0))


SUMS: tuple[ColumnElement[Any], ...] = (
    func.count().label("attempts"),
    func.sum(case((attempts.c.accepted, 1), else_=0)).label("tasks"),
    func.sum(attempts.c.wall_s).label("wall_s"),
    _cpu_s(attempts.c.accepted | IS_VOTE).label("useful_cpu_s"),
    _cpu_s(attempts.c.replica & ~attempts.c.asked).label("replicated_cpu_s"),
    _cpu_s(_is_loser).label("wasted_cpu_s"),
    _cpu_s(_is_lost).label("lost_cpu_s"),
)
"""What is summed up of attempts."""
NAMES = ["jobs", *(column.name for column in SUMS)]
"""With the number of their jobs: the figures of a line, and the columns of the table ``usage``."""


class UsageQueries:
    """Sums usage."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def by(self, subject: HistorySubject, since: float, until: float, limit: int) -> list[HistoryLine]:
        """Return the usage by attempts that ended between these moments; the largest comes first.

        Of forgotten jobs, those count that ended on a day which begins between them.
        """

        def work(connection: Connection) -> list[HistoryLine]:
            if subject == "job":  # there may be many of them, and nothing is kept of those that are forgotten
                return _added(connection.execute(_of_jobs(since, until).limit(limit)))
            known = _of_workers(since, until) if subject == "worker" else _of_users(since, until)
            lines = _added(connection.execute(known), connection.execute(_forgotten(subject, since, until)))
            return sorted(lines, key=lambda line: (-_cpu_of(line), line.subject))[:limit]

        return await self._read(work)


def _ended(since: float, until: float) -> ColumnElement[bool]:
    """Return the condition; with the whole history, a sum keeps the rows in the order of their key, unsorted."""
    ended_at: ColumnElement[float | None] = attempts.c.ended_at if since > 0 else attempts.c.ended_at + 0
    return and_(ended_at >= since, ended_at < until)


def _of_workers(since: float, until: float) -> Select[Any]:
    count = func.count(attempts.c.job.distinct()).label("jobs")
    query = select(attempts.c.worker.label("subject"), literal("").label("name"), count, *SUMS)
    return query.where(_ended(since, until)).group_by(attempts.c.worker)


def _each_job(since: float, until: float) -> Subquery:
    sums = select(attempts.c.job, func.sum(attempts.c.cpu_s).label("cpu_s"), *SUMS)
    return sums.where(_ended(since, until)).group_by(attempts.c.job).subquery()


def _of_jobs(since: float, until: float) -> Select[Any]:
    each = _each_job(since, until)
    figures = (each.c[column.name] for column in SUMS)
    query = select(each.c.job.label("subject"), specs.c.name, literal(1).label("jobs"), *figures)
    return query.join_from(each, specs, specs.c.job == each.c.job).order_by(each.c.cpu_s.desc(), each.c.job)


def _of_users(since: float, until: float) -> Select[Any]:
    each = _each_job(since, until)
    figures = (func.sum(each.c[column.name]).label(column.name) for column in SUMS)
    query = select(jobs.c.owner.label("subject"), literal("").label("name"), func.count().label("jobs"), *figures)
    return query.join_from(each, jobs, jobs.c.id == each.c.job).group_by(jobs.c.owner)


def _forgotten(subject: HistorySubject, since: float, until: float) -> Select[Any]:
    begin = usage.c.day * _DAY_S
    query = select(usage.c.name.label("subject"), literal("").label("name"))
    query = query.add_columns(*(func.sum(usage.c[name]).label(name) for name in NAMES))
    return query.where(usage.c.kind == subject, begin >= since, begin < until).group_by(usage.c.name)


def _added(*parts: Iterable[Row[Any]]) -> list[HistoryLine]:
    """Return a line for each subject, with the sums of all of its rows."""
    lines: dict[str, dict[str, Any]] = {}
    for row in (row for part in parts for row in part):
        subject = str(row.subject) or FORGOTTEN_WORKERS
        line = lines.setdefault(subject, {"subject": subject, "name": row.name, **dict.fromkeys(NAMES, 0)})
        for name in NAMES:
            line[name] += getattr(row, name)
    return [HistoryLine(**line) for line in lines.values()]


def _cpu_of(line: HistoryLine) -> float:
    return line.useful_cpu_s + line.wasted_cpu_s + line.lost_cpu_s
