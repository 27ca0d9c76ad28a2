"""Attempts in a window of time, for drawing: many rows, with only the columns that a picture shows."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    type_coerce,
    union_all,
)

from loopline_master.store.database import Transact
from loopline_master.store.history import job_sums
from loopline_master.store.history.attempt_sums import IS_VOTE
from loopline_master.store.history.job_sums import Tasks
from loopline_master.store.tables import attempts, jobs, specs
from loopline_master.store.tables import job_sums as sums

_NAMES_AT_ONCE = 1000
_a = attempts.c
_BAR: Sequence[ColumnElement[Any]] = (  # as the database has them: decoding enums and JSON takes time
    _a.job,
    _a.task,
    _a.number,
    _a.worker,
    type_coerce(_a.state, Text).label("state"),
    type_coerce(_a.replica, Integer).label("replica"),
    case((_a.accepted, 1), (IS_VOTE, 1), else_=0).label("accepted"),
    _a.dispatched_at,
    _a.started_at,
    _a.ended_at,
    _a.wall_s,
    type_coerce(_a.freezes, Text).label("freezes"),  # JSON
    _a.slot,
    type_coerce(_a.phases, Text).label("phases"),  # JSON
)
_BARS_OF = select(*_BAR).where(_a.job == bindparam("of_job"), _a.task.in_(bindparam("tasks", expanding=True)))
_held_until = func.coalesce(jobs.c.released_at, jobs.c.finished_at)


class Bar(NamedTuple):
    """An attempt as a picture shows it: the columns of ``_BAR``, which a row would look up by name each time."""

    job: int
    task: int
    number: int
    worker: str
    state: str
    replica: int
    accepted: int
    dispatched_at: float
    started_at: float | None
    ended_at: float | None
    wall_s: float
    freezes: str
    slot: int
    phases: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time. ``held``: (job, since, until); ``names``: of all jobs in them.

    Bars and holds are in the order of their beginnings.
    """

    since: float
    until: float
    bars: list[Bar]
    held: list[Row[Any]]
    names: dict[int, str]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """Part of a timeline that is wanted: attempts of one job, of one user's jobs, on one worker; None: of all."""

    job: int | None = None
    owner: str | None = None
    worker: str | None = None

    def of_jobs(self, number: ColumnElement[int]) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions on a column with the numbers of jobs."""
        if self.job is not None:
            yield number == self.job
        if self.owner is not None:
            yield number.in_(select(jobs.c.id).where(jobs.c.owner == self.owner))

    def of_attempts(self) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions on attempts."""
        yield from self.of_jobs(_a.job)
        if self.worker is not None:
            yield _a.worker == self.worker


class Begun:
    """Attempts of a job in order of start, as a few bytes each; ``held``: as in a Window."""

    def __init__(self, name: str, held: list[Row[Any]]) -> None:
        self.name, self.held = name, held
        self.workers: set[str] = set()
        self.first_at: float | None = None
        self._tasks, self._numbers = array("q"), array("q")

    def add(self, task: int, number: int, worker: str, started_at: float) -> None:
        """Add an attempt."""
        self.first_at = started_at if self.first_at is None else self.first_at
        self.workers.add(worker)
        self._tasks.append(task)
        self._numbers.append(number)

    def parts(self, count: int) -> Iterator[list[tuple[int, int]]]:
        """Yield the attempts in parts: task and number."""
        for at in range(0, len(self._tasks), count):
            yield list(zip(self._tasks[at : at + count], self._numbers[at : at + count], strict=True))


ALL = Chosen()


class TimelineQueries:
    """Reads windows of time."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def window(self, since: float, until: float, *, of: Chosen = ALL, limit: int) -> Window:
        """Return the attempts on their workers, and the held last tasks, between ``since`` and ``until``.

        If there are more than ``limit``, the latest ones.
        """
        held = _held(since, until, of, limit)

        def work(connection: Connection) -> Window:
            tasks = None if of.job is None else tasks_in(connection, of.job, since, until, limit + 1)
            rows = [Bar._make(row) for row in connection.execute(_bars(since, until, of, limit, tasks))][::-1]
            holds = [] if of.worker is not None else connection.execute(held).all()[::-1]
            names = _names(connection, sorted({one.job for one in rows} | {hold.job for hold in holds}))
            truncated = len(rows) > limit or len(holds) > limit
            return Window(
                since=since,
                until=until,
                bars=rows[-limit:],
                held=list(holds)[-limit:],
                names=names,
                truncated=truncated,
            )

        return await self._read(work)

    async def begun(self, job: int, until: float, limit: int) -> Begun:
        """Return which attempts of a job have begun, in the order of that; of more than ``limit`` the latest."""

        def work(connection: Connection) -> Begun:
            tasks = tasks_in(connection, job, 0.0, until, limit)
            keys = _keys(0.0, until, Chosen(job), limit - 1, tasks)
            latest = keys.where(_a.started_at.is_not(None)).subquery()  # unstarted ones take no place
            begun = select(latest.c.task, latest.c.number, latest.c.worker, latest.c.started_at)
            by_begin = (latest.c.started_at, latest.c.task, latest.c.number)
            held = list(connection.execute(_held(0.0, until, Chosen(job), 1)))
            found = Begun(_names(connection, [job]).get(job, ""), held)
            for row in connection.execute(begun.order_by(*by_begin)):
                found.add(*row)
            return found

        return await self._read(work)

    async def bars_of(self, job: int, tasks: Collection[int], most: int) -> list[Bar]:
        """Return the bars of all attempts of these tasks.

        The last one is named as often as it takes: each number of parameters would be another statement, which the
        driver keeps.
        """
        values = {"of_job": job, "tasks": [*tasks, *[max(tasks)] * (most - len(tasks))]}
        return await self._read(lambda connection: [Bar._make(row) for row in connection.execute(_BARS_OF, values)])


def _bars(since: float, until: float, of: Chosen, limit: int, tasks: Sequence[Tasks] | None = None) -> Select[Any]:
    """Return the query for bars, in parts that an index answers each; ``tasks``: those of its job to look at.

    The parts are: dispatched in the window; on its worker when the window began, and ended since then or not yet. A
    window that ends now, as most do, does not read older rows.
    """
    if tasks is not None:
        return _of_tasks(since, until, of, limit, tasks)
    before = _a.dispatched_at + 0 < min(since, until)  # a sum, so that the index on the end is used
    parts = [
        _latest(_a.dispatched_at, of, limit, _a.dispatched_at >= since, _a.dispatched_at < until),
        _latest(_a.dispatched_at + 0, of, limit, _a.ended_at >= since, before),
        _latest(_a.dispatched_at + 0, of, limit, _a.ended_at.is_(None), before),
    ]
    all_ = union_all(*parts).subquery()
    by_age = (all_.c.dispatched_at, all_.c.job, all_.c.task, all_.c.number)
    return select(all_).order_by(*(column.desc() for column in by_age)).limit(limit + 1)


def _of_tasks(since: float, until: float, of: Chosen, limit: int, tasks: Sequence[Tasks]) -> Select[Any]:
    """Return the query for bars of stretches of a job's tasks: keys are sorted, and only what is shown is read."""
    keys = _keys(since, until, of, limit, tasks).subquery()
    is_its = and_(_a.job == keys.c.job, _a.task == keys.c.task, _a.number == keys.c.number)
    query = select(*_BAR).join_from(keys, attempts, is_its)
    return query.order_by(*(column.desc() for column in (keys.c.dispatched_at, _a.job, _a.task, _a.number)))


def _keys(since: float, until: float, of: Chosen, limit: int, tasks: Sequence[Tasks]) -> Select[Any]:
    """Return the query for keys of bars in a window: a sum keeps indexes on times out."""
    dispatched_at, ended_at = _a.dispatched_at + 0, _a.ended_at + 0
    is_there = and_(dispatched_at < until, or_(dispatched_at >= since, ended_at >= since, ended_at.is_(None)))
    here = or_(false(), *(and_(_a.task >= first, _a.task <= last) for first, last in tasks))
    query = select(_a.job, _a.task, _a.number, _a.dispatched_at, _a.started_at, _a.worker)
    query = query.where(*of.of_attempts(), here, is_there)
    return query.order_by(dispatched_at.desc(), *(column.desc() for column in (_a.task, _a.number))).limit(limit + 1)


def _latest(rank: ColumnElement[float], of: Chosen, limit: int, *where: ColumnElement[bool]) -> Select[Any]:
    query = select(*_BAR).where(*where, *of.of_attempts())
    return select(query.order_by(rank.desc()).limit(limit + 1).subquery())


def _held(since: float, until: float, of: Chosen, limit: int) -> Select[Any]:
    query = select(jobs.c.id.label("job"), jobs.c.held_at.label("since"), _held_until.label("until")).where(
        jobs.c.held_at < until, or_(_held_until.is_(None), _held_until >= since), *of.of_jobs(jobs.c.id)
    )
    return query.order_by(jobs.c.held_at.desc()).limit(limit + 1)


def _names(connection: Connection, numbers: list[int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for at in range(0, len(numbers), _NAMES_AT_ONCE):
        query = select(specs.c.job, specs.c.name).where(specs.c.job.in_(numbers[at : at + _NAMES_AT_ONCE]))
        names |= {row.job: row.name for row in connection.execute(query)}
    return names


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
