"""The past for archives and measures: jobs that have ended, stays of workers, and parallel jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from statistics import StatisticsError, correlation, fmean, linear_regression
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, number, page_of, word
from loopline_master.store.records import MINUTE_S
from loopline_master.store.tables import attempts, jobs, samples, specs
from loopline_shared.rest.bodies import Page, ParallelReport, PastJob, WaitOfNodes, WorkerStay

_MOST_TASKS = 200_000
"""Tasks of the jobs of one page: their attempts are read."""
_MOST_PARALLEL = 10_000
_MOST_NODES = 50
"""Numbers of nodes in a report; the others are left out, the rarest first."""

_JOB = (
    jobs.c.id, jobs.c.owner.label("user"), specs.c.name, jobs.c.state, jobs.c.submitted_at, jobs.c.started_at,
    jobs.c.finished_at, jobs.c.task_count, jobs.c.nodes,
)  # fmt: skip
_OF_ACCEPTED = (
    attempts.c.job,
    func.max(attempts.c.slots).label("slots"),
    func.count().label("results"),
    func.sum(attempts.c.wall_s).label("wall_s"),
    func.sum(attempts.c.cpu_s).label("cpu_s"),
    func.max(attempts.c.peak_memory_bytes).label("peak_memory_bytes"),
)
_NONE = {"slots": 1, "results": 0, "wall_s": 0.0, "cpu_s": 0.0, "peak_memory_bytes": 0}


class PastQueries:
    """Reads the past, as far as jobs and samples are kept."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def jobs(self, since: float, until: float, cursor: str | None, limit: int) -> Page[PastJob]:
        """Return jobs that ended between two moments, by number. Raises LooplineError for a bad cursor."""
        seen = after(cursor, number, 0)

        def work(connection: Connection) -> Page[PastJob]:
            query = select(*_JOB).join_from(jobs, specs, specs.c.job == jobs.c.id).order_by(jobs.c.id)
            ended = (jobs.c.finished_at >= since, jobs.c.finished_at < until)
            rows = connection.execute(query.where(jobs.c.id > seen, *ended).limit(limit + 1)).all()
            count = _fit(rows[:limit])
            used = _used(connection, [row.id for row in rows[:count]])
            return page_of([_past(row, used) for row in rows[: count + 1]], count or 1, lambda job: job.id)

        return await self._read(work)

    async def stays(self, since: float, until: float, cursor: str | None, limit: int) -> Page[WorkerStay]:
        """Return when workers were connected, one worker after the other; ``limit``: workers."""
        seen, first, end = after(cursor, word, ""), int(since // MINUTE_S), ceil(until / MINUTE_S)
        within = and_(samples.c.minute >= first, samples.c.minute < end)

        def work(connection: Connection) -> Page[WorkerStay]:
            named = select(samples.c.worker).where(within, samples.c.worker > seen).distinct()
            names = connection.scalars(named.order_by(samples.c.worker).limit(limit + 1)).all()
            page = page_of(list(names), limit, str)
            stays = [stay for name in page.items for stay in _stays_of(connection, name, within)]
            return Page(items=stays, next=page.next)

        return await self._read(work)

    async def parallel(self, since: float, until: float) -> ParallelReport:
        """Return utilisation and waits of the jobs on several nodes that started between two moments."""
        started = (jobs.c.nodes > 1, jobs.c.started_at >= since, jobs.c.started_at < until)
        waits = select(jobs.c.nodes, (jobs.c.started_at - jobs.c.submitted_at).label("wait")).where(*started)

        def work(connection: Connection) -> ParallelReport:
            rows = connection.execute(waits.order_by(jobs.c.id.desc()).limit(_MOST_PARALLEL + 1)).all()
            points = [(row.nodes, max(0.0, row.wait)) for row in rows[:_MOST_PARALLEL]]
            minutes = (samples.c.minute >= since // MINUTE_S, samples.c.minute < until / MINUTE_S)
            sums = select(func.sum(samples.c.slots), func.sum(samples.c.used)).where(*minutes)
            offered, used = connection.execute(sums).one()
            return ParallelReport(
                since=since,
                until=until,
                jobs=len(points),
                truncated=len(rows) > _MOST_PARALLEL,
                offered_s=(offered or 0) * MINUTE_S,
                used_s=(used or 0) * MINUTE_S,
                parallel_s=connection.scalar(_parallel_s(since, until)) or 0.0,
                **_line(points),
                waits=_by_nodes(points),
            )

        return await self._read(work)


def _fit(rows: Sequence[Any]) -> int:
    """Return how many jobs one page can have, at least one."""
    tasks = 0
    for count, row in enumerate(rows):
        tasks += row.task_count * row.nodes
        if tasks > _MOST_TASKS:
            return max(1, count)
    return len(rows)


def _used(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    query = select(*_OF_ACCEPTED).where(attempts.c.job.in_(numbers), attempts.c.accepted).group_by(attempts.c.job)
    return {row.job: {name: row._mapping[name] for name in _NONE} for row in connection.execute(query)}


def _past(row: Any, used: dict[int, dict[str, Any]]) -> PastJob:
    return PastJob(**row._mapping, **used.get(row.id, _NONE))


def _stays_of(connection: Connection, worker: str, within: ColumnElement[bool]) -> Iterator[WorkerStay]:
    minutes = select(samples.c.minute).where(within, samples.c.worker == worker).order_by(samples.c.minute)
    first = last = None
    for minute in connection.scalars(minutes):
        if last is not None and minute > last + 1:
            yield _stay(worker, first or 0, last)
            first = None
        first, last = minute if first is None else first, minute
    if last is not None:
        yield _stay(worker, first or 0, last)


def _stay(worker: str, first: int, last: int) -> WorkerStay:
    return WorkerStay(worker=worker, since=first * MINUTE_S, until=(last + 1) * MINUTE_S)


def _parallel_s(since: float, until: float) -> Any:
    """Return the query for the slot time of parallel jobs within the window; that of running ones is not known."""
    begin = case((attempts.c.started_at < since, since), else_=attempts.c.started_at)
    end = case((attempts.c.ended_at > until, until), else_=attempts.c.ended_at)
    is_within = (attempts.c.ended_at > since, attempts.c.started_at < until)
    query = select(func.sum((end - begin) * attempts.c.slots)).join_from(attempts, jobs, jobs.c.id == attempts.c.job)
    return query.where(jobs.c.nodes > 1, *is_within)


def _line(points: Sequence[tuple[int, float]]) -> dict[str, float | None]:
    nodes, waits = [float(count) for count, _ in points], [wait for _, wait in points]
    line = dict.fromkeys(("s_per_node", "correlation", "residual_s"))
    try:
        slope, intercept = linear_regression(nodes, waits)
    except StatisticsError:  # fewer than two jobs, or all of one number of nodes
        return {"mean_wait_s": fmean(waits) if waits else None, **line}
    residual = sqrt(fmean((wait - slope * count - intercept) ** 2 for count, wait in zip(nodes, waits, strict=True)))
    varies = max(waits) > min(waits)
    return {
        "mean_wait_s": fmean(waits),
        "s_per_node": slope,
        "correlation": correlation(nodes, waits) if varies else 0.0,
        "residual_s": residual,
    }


def _by_nodes(points: Sequence[tuple[int, float]]) -> list[WaitOfNodes]:
    groups: dict[int, list[float]] = {}
    for nodes, wait in points:
        groups.setdefault(nodes, []).append(wait)
    most = sorted(groups, key=lambda nodes: -len(groups[nodes]))[:_MOST_NODES]
    return [
        WaitOfNodes(nodes=nodes, jobs=len(waits), mean_wait_s=fmean(waits), longest_wait_s=max(waits))
        for nodes, waits in ((nodes, groups[nodes]) for nodes in sorted(most))
    ]
