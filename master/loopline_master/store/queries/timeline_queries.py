"""Attempts in a window of time, for drawing: many rows, with only the columns that a picture shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    case,
    func,
    or_,
    select,
    type_coerce,
    union_all,
)

from loopline_master.store.database import Transact
from loopline_master.store.history.attempt_sums import IS_VOTE
from loopline_master.store.tables import attempts, jobs, specs

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
_held_until = func.coalesce(jobs.c.released_at, jobs.c.finished_at)


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time. ``bars``: rows of ``_BAR``; ``held``: (job, since, until); ``names``: of all jobs in them.

    Bars and holds are in the order of their beginnings.
    """

    since: float
    until: float
    bars: list[Row[Any]]
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


ALL = Chosen()


class TimelineQueries:
    """Reads windows of time."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def window(self, since: float, until: float, *, of: Chosen = ALL, limit: int) -> Window:
        """Return the attempts on their workers, and the held last tasks, between ``since`` and ``until``.

        Of more than ``limit``, those that began last.
        """
        bars, held = _bars(since, until, of, limit), _held(since, until, of, limit)

        def work(connection: Connection) -> Window:
            rows = connection.execute(bars).all()[::-1]
            holds = [] if of.worker is not None else connection.execute(held).all()[::-1]
            names = _names(connection, sorted({row.job for row in (*rows, *holds)}))
            truncated = len(rows) > limit or len(holds) > limit
            return Window(
                since=since,
                until=until,
                bars=list(rows)[-limit:],
                held=list(holds)[-limit:],
                names=names,
                truncated=truncated,
            )

        return await self._read(work)


def _bars(since: float, until: float, of: Chosen, limit: int) -> Select[Any]:
    """Return the query for bars, in parts that an index answers each.

    The parts are: dispatched in the window; on its worker when the window began, and ended since then or not yet. A
    window that ends now, as most do, does not read older rows.
    """
    before = _a.dispatched_at + 0 < min(since, until)  # a sum, so that the index on the end is used
    parts = [
        _latest(_a.dispatched_at, of, limit, _a.dispatched_at >= since, _a.dispatched_at < until),
        _latest(_a.dispatched_at + 0, of, limit, _a.ended_at >= since, before),
        _latest(_a.dispatched_at + 0, of, limit, _a.ended_at.is_(None), before),
    ]
    all_ = union_all(*parts).subquery()
    by_age = (all_.c.dispatched_at, all_.c.job, all_.c.task, all_.c.number)
    return select(all_).order_by(*(column.desc() for column in by_age)).limit(limit + 1)


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
