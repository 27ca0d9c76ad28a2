"""The history of an ended job: how its time was spent, from the rows, since the scheduler has forgotten it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, case, func, select, true

from loopline_master.core.entities import UNRELEASED
from loopline_master.store.database import Transact
from loopline_master.store.tables import attempts, jobs, workers
from loopline_shared.model import AttemptState, JobState


@dataclass(frozen=True, slots=True)
class Slowest:
    """The longest accepted attempt of a job."""

    task: int
    worker: str
    took_s: float
    speed: float  # the worker's, by its benchmark
    times_mean: float


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The history of one job: times in seconds, and counts of attempts."""

    chained_s: float  # before it entered the grid
    queued_s: float  # from then until its first task was started
    held_s: float
    held_behind: int | None
    lost: int
    failed: int
    given_back: int
    frozen_s: float  # total time for which accepted attempts were frozen
    replicas_won: int
    slowest: Slowest | None


class JobHistories:
    """Reads the histories of jobs."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def of_job(self, job: int) -> JobHistory | None:
        """Return the history of a job; None if there is no such job."""
        return await self._read(lambda connection: _story(connection, job))


def _story(connection: Connection, number: int) -> JobHistory | None:
    job = connection.execute(select(jobs).where(jobs.c.id == number)).one_or_none()
    if job is None:
        return None
    sums = connection.execute(_SUMS.where(attempts.c.job == number)).one()
    entered = job.entered_at or job.submitted_at
    held_until = job.released_at if job.released_at is not None else job.finished_at
    return JobHistory(
        chained_s=max(0.0, entered - job.submitted_at) if job.entered_at is not None else 0.0,
        queued_s=max(0.0, (job.started_at or job.finished_at or entered) - entered),
        held_s=max(0.0, (held_until or job.held_at) - job.held_at) if job.held_at is not None else 0.0,
        held_behind=_held_behind(connection, job),
        lost=sums.lost or 0,
        failed=sums.failed or 0,
        given_back=sums.given_back or 0,
        frozen_s=sums.frozen_s or 0.0,
        replicas_won=sums.replicas_won or 0,
        slowest=_slowest(connection, number, sums.mean_s or 0.0),
    )


def _count(of: Any) -> Any:
    return func.sum(case((of, 1), else_=0))


_stood_s = attempts.c.ended_at - attempts.c.started_at - attempts.c.wall_s
_SUMS = select(
    _count(attempts.c.state == AttemptState.LOST).label("lost"),
    _count(attempts.c.state == AttemptState.FAILED).label("failed"),
    _count(and_(attempts.c.state == AttemptState.CANCELLED, attempts.c.reason.like("%owner%"))).label("given_back"),
    func.sum(case((and_(attempts.c.accepted, _stood_s > 1.0), _stood_s), else_=0.0)).label("frozen_s"),
    _count(and_(attempts.c.accepted, attempts.c.replica, ~attempts.c.asked)).label("replicas_won"),
    func.avg(case((attempts.c.accepted, attempts.c.wall_s))).label("mean_s"),
)


def _held_behind(connection: Connection, job: Row[Any]) -> int | None:
    """Return, of the jobs that this one could not pass while it was held, the last to leave."""
    if job.held_at is None:
        return None
    query = select(jobs.c.id).where(
        jobs.c.arrival != UNRELEASED,
        jobs.c.arrival < job.arrival,
        true() if job.size is None else jobs.c.size <= job.size,
        jobs.c.finished_at >= job.held_at,
        jobs.c.finished_at <= (job.released_at or job.finished_at or job.held_at),
        jobs.c.state.in_((JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)),
    )
    behind: int | None = connection.scalar(query.order_by(jobs.c.finished_at.desc()).limit(1))
    return behind


def _slowest(connection: Connection, job: int, mean_s: float) -> Slowest | None:
    query = (
        select(attempts.c.task, attempts.c.worker, attempts.c.wall_s, workers.c.facts)
        .outerjoin_from(attempts, workers, workers.c.name == attempts.c.worker)
        .where(attempts.c.job == job, attempts.c.accepted)
        .order_by(attempts.c.wall_s.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.wall_s <= 0:
        return None
    speed = row.facts.speed if row.facts else 1.0
    return Slowest(row.task, row.worker, row.wall_s, speed, row.wall_s / mean_s if mean_s else 1.0)
