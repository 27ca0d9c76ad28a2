"""Usage: processor time of ended attempts, by user, worker or job; of forgotten jobs, as it was summed up.

Of large jobs most is read from their sums (history/job_sums.py), and only what these do not cover from attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, and_, func, literal, select

from loopline_master.store.database import Transact
from loopline_master.store.history.attempt_sums import OF_CHECKPOINTS, USED, ended_within, of_checkpoints
from loopline_master.store.history.energy_sums import energy_by, energy_of_jobs, total_energy
from loopline_master.store.history.job_sums import Tasks, among, is_large, tasks_without
from loopline_master.store.tables import attempts, job_sums, jobs, specs, usage, worker_sums
from loopline_shared.rest.bodies import EnergyUse, HistoryLine, HistoryReport, HistorySort, HistorySubject

FORGOTTEN_WORKERS = "(forgotten workers)"
_DAY_S = 86400
_ATTEMPTS = ["jobs", *(column.name for column in USED)]
"""With the number of their jobs: the figures of a line without checkpoints."""
NAMES = [*_ATTEMPTS, *OF_CHECKPOINTS]
"""The figures of a line, and the columns of the table ``usage``."""
Line = dict[str, Any]


class UsageQueries:
    """Sums usage."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def by(
        self, subject: HistorySubject, since: float, until: float, limit: int, sort: HistorySort = "cpu"
    ) -> HistoryReport:
        """Return the usage by attempts that ended between these moments, with the most CPU time or energy first.

        Of forgotten jobs, those count that ended on a day which begins between them; a line for each job has none of
        them, for nothing else is kept of them.
        """

        def work(connection: Connection) -> HistoryReport:
            large = _Large(connection, since, until)
            ended = _Ended(since, until, is_by_key=since <= 0 or large.is_most(), are_large_apart=bool(large))
            parts = [connection.execute(query) for query in _small(subject, ended, limit, sort)]
            corrections = map(_line_of, connection.execute(_by_checkpoints(subject, since, until)))
            lines = _added(*(map(_line_of, part) for part in parts), large.lines(subject), corrections=corrections)
            lines, total = _with_energy(connection, subject, ended, lines)
            lines.sort(key=lambda line: (-_cpu_of(line), _rank(subject, line)))
            if sort == "energy":
                lines.sort(key=_kwh_of, reverse=True)
            return HistoryReport(since=since, until=until, lines=lines[:limit], energy=total)

        return await self._read(work)


@dataclass(frozen=True, slots=True)
class _Ended:
    """Attempts that ended in a window of time, and how they are found.

    ``is_by_key``: job by job, instead of by their end. ``are_large_apart``: those of large jobs are not among them.
    """

    since: float
    until: float
    is_by_key: bool
    are_large_apart: bool

    def of(self, query: Select[Any]) -> Select[Any]:
        """Return the query, confined to these attempts."""
        if self.are_large_apart:  # a sum is no key: so the jobs come first, and then the attempts of each
            is_its = attempts.c.job == jobs.c.id + 0 if self.is_by_key else attempts.c.job + 0 == jobs.c.id
            query = query.join_from(attempts, jobs, is_its).where(~is_large())
        return query.where(ended_within(self.since, self.until, is_by_key=self.is_by_key))


def _small(subject: HistorySubject, ended: _Ended, limit: int, sort: HistorySort) -> Iterator[Select[Any]]:
    """Yield the queries for the lines of all jobs but large ones, if those are apart."""
    if subject == "job":  # there may be many of them
        yield _of_jobs(ended, sort).limit(limit)
    else:
        yield _of_workers(ended) if subject == "worker" else _of_users(ended)
        yield _forgotten(subject, ended.since, ended.until)


def _by_checkpoints(subject: HistorySubject, since: float, until: float) -> Select[Any]:
    columns = {"user": jobs.c.owner, "worker": attempts.c.worker, "job": jobs.c.id}
    return of_checkpoints(columns[subject]).where(ended_within(since, until, is_by_key=True))


def _of_workers(ended: _Ended) -> Select[Any]:
    count = func.count(attempts.c.job.distinct()).label("jobs")
    query = select(attempts.c.worker.label("subject"), literal("").label("name"), count, *USED)
    return ended.of(query).group_by(attempts.c.worker)


def _each_job(ended: _Ended) -> Subquery:
    sums = select(attempts.c.job, func.sum(attempts.c.cpu_s).label("cpu_s"), *USED)
    return ended.of(sums).group_by(attempts.c.job).subquery()


def _of_jobs(ended: _Ended, sort: HistorySort) -> Select[Any]:
    each = _each_job(ended)
    figures = (each.c[column.name] for column in USED)
    query = select(each.c.job.label("subject"), specs.c.name, literal(1).label("jobs"), *figures)
    query = query.join_from(each, specs, specs.c.job == each.c.job)
    if sort == "energy":
        energy = energy_of_jobs(ended.since, ended.until, is_by_key=ended.is_by_key)
        query = query.outerjoin(energy, energy.c.job == each.c.job)
        query = query.order_by(func.coalesce(energy.c.all_j, 0.0).desc())
    return query.order_by(each.c.cpu_s.desc(), each.c.job)


def _of_users(ended: _Ended) -> Select[Any]:
    each = _each_job(ended)
    figures = (func.sum(each.c[column.name]).label(column.name) for column in USED)
    query = select(jobs.c.owner.label("subject"), literal("").label("name"), func.count().label("jobs"), *figures)
    return query.join_from(each, jobs, jobs.c.id == each.c.job).group_by(jobs.c.owner)


def _forgotten(subject: HistorySubject, since: float, until: float) -> Select[Any]:
    begin = usage.c.day * _DAY_S
    query = select(usage.c.name.label("subject"), literal("").label("name"))
    query = query.add_columns(*(func.sum(usage.c[name]).label(name) for name in NAMES))
    return query.where(usage.c.kind == subject, begin >= since, begin < until).group_by(usage.c.name)


class _Large:
    """Large jobs, with the pieces whose sums lie completely within a window of time, and the others."""

    def __init__(self, connection: Connection, since: float, until: float) -> None:
        self._connection, self._since, self._until = connection, since, until
        self._jobs = connection.execute(
            select(jobs.c.id, jobs.c.owner, jobs.c.task_count, specs.c.name).join_from(jobs, specs).where(is_large())
        ).all()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def is_most(self) -> bool:
        """True if more attempts are in pieces of this window than small jobs have tasks at all."""
        whole = select(func.sum(job_sums.c.attempts)).where(self._is_whole)
        rest = select(func.sum(jobs.c.task_count)).where(~is_large())
        return bool(self) and (self._connection.scalar(whole) or 0) > (self._connection.scalar(rest) or 0)

    def lines(self, subject: HistorySubject) -> Iterator[Line]:
        """Yield lines of these jobs, more than one for a subject; a job counts for each of its subjects once."""
        known = {row.id: row for row in self._jobs}
        sums: dict[tuple[int, str], Line] = {}
        for job, worker, row in self._parts(is_by_worker=subject == "worker"):
            line = sums.setdefault((job, worker), {"jobs": 1, **dict.fromkeys(_ATTEMPTS[1:], 0)})
            for name in _ATTEMPTS[1:]:
                line[name] += row[name]
        for (job, worker), line in sums.items():
            of = {"user": (known[job].owner, ""), "job": (str(job), known[job].name), "worker": (worker, "")}
            yield {"subject": of[subject][0], "name": of[subject][1], **line}

    @property
    def _is_whole(self) -> ColumnElement[bool]:
        return and_(job_sums.c.first_ended_at >= self._since, job_sums.c.last_ended_at < self._until)

    def _parts(self, *, is_by_worker: bool) -> Iterator[tuple[int, str, Line]]:
        """Yield sums with their job and worker, "" where they are of all: those of pieces, and those of attempts."""
        known = {row.id for row in self._jobs}
        for row in self._connection.execute(self._of_pieces(is_by_worker=is_by_worker)) if known else ():
            if row.job in known:
                yield row.job, row.worker, dict(row._mapping)
        cut = self._cut()
        for job in self._jobs:
            for stretch in tasks_without(job.task_count, cut.get(job.id, ())):
                for row in self._connection.execute(self._of_attempts(job.id, stretch, is_by_worker=is_by_worker)):
                    if row.attempts:
                        yield job.id, row.worker, dict(row._mapping)

    def _of_pieces(self, *, is_by_worker: bool) -> Select[Any]:
        table = worker_sums if is_by_worker else job_sums
        worker = worker_sums.c.worker if is_by_worker else literal("").label("worker")
        figures = (func.sum(table.c[name]).label(name) for name in _ATTEMPTS[1:])
        query = select(table.c.job, worker, *figures).where(self._is_whole, table.c.attempts > 0)
        if is_by_worker:
            is_its = and_(worker_sums.c.job == job_sums.c.job, worker_sums.c.piece == job_sums.c.piece)
            return query.join_from(job_sums, worker_sums, is_its).group_by(table.c.job, worker_sums.c.worker)
        return query.group_by(table.c.job)

    def _cut(self) -> dict[int, set[int]]:
        """Return, by job, the pieces whose attempts are left unread: all of them end in this window, or none."""
        is_in_part = and_(
            ~self._is_whole, job_sums.c.first_ended_at < self._until, job_sums.c.last_ended_at >= self._since
        )
        settled = select(job_sums.c.job, job_sums.c.piece).where(~func.coalesce(is_in_part, False))
        found: dict[int, set[int]] = {}
        for job, piece in self._connection.execute(settled):
            found.setdefault(job, set()).add(piece)
        return found

    def _of_attempts(self, job: int, stretch: Tasks, *, is_by_worker: bool) -> Select[Any]:
        worker = attempts.c.worker if is_by_worker else literal("").label("worker")
        query = select(worker, *USED).where(among(job, stretch))
        query = query.where(ended_within(self._since, self._until, is_by_key=True))
        return query.group_by(attempts.c.worker) if is_by_worker else query


def _line_of(row: Row[Any]) -> Line:
    return {**row._mapping, "subject": str(row.subject)}


def _added(*parts: Iterable[Line], corrections: Iterable[Line]) -> list[HistoryLine]:
    """Return a line for each subject, with the sums of all of its parts. Corrections are of subjects among these."""
    lines: dict[str, Line] = {}
    for part in (each for parts_ in parts for each in parts_):
        subject = part["subject"] or FORGOTTEN_WORKERS
        line = lines.setdefault(subject, {"subject": subject, "name": part["name"], **dict.fromkeys(NAMES, 0)})
        for name in NAMES:
            line[name] += part.get(name, 0)
    for part in corrections:
        if part["subject"] in lines:
            line = lines[part["subject"]]
            line |= {name: line[name] + part[name] for name in NAMES if name in part}
    return [HistoryLine(**line) for line in lines.values()]


def _with_energy(
    connection: Connection, subject: HistorySubject, ended: _Ended, lines: list[HistoryLine]
) -> tuple[list[HistoryLine], EnergyUse | None]:
    """Return the lines with their energy, and the energy of all users."""
    energy_of = partial(energy_by, connection, since=ended.since, until=ended.until, is_by_key=ended.is_by_key)
    if not (by_user := energy_of("user")):
        return lines, None
    among = [int(line.subject) for line in lines] if subject == "job" else None
    energy = by_user if subject == "user" else energy_of(subject, among=among)
    own = ((line, energy.get("" if line.subject == FORGOTTEN_WORKERS else line.subject)) for line in lines)
    with_it = [line.model_copy(update={"energy": use}) if use else line for line, use in own]
    return with_it, total_energy(by_user.values())


def _rank(subject: HistorySubject, line: HistoryLine) -> int | str:
    return int(line.subject) if subject == "job" else line.subject


def _kwh_of(line: HistoryLine) -> float:
    return line.energy.useful_kwh + line.energy.wasted_kwh if line.energy else 0.0


def _cpu_of(line: HistoryLine) -> float:
    return line.useful_cpu_s + line.kept_cpu_s + line.wasted_cpu_s + line.lost_cpu_s
