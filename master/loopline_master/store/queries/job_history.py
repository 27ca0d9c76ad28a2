"""The history of an ended job: how its time was spent, from the rows, since the scheduler has forgotten it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from loopline_master.core.kernel.entities import UNRELEASED
from loopline_master.store import tables
from loopline_master.store.database import Transact
from loopline_master.store.history import job_sums
from loopline_master.store.history.attempt_sums import TASKS, WENT
from loopline_master.store.history.job_sums import Tasks
from loopline_master.store.tables import attempts, jobs, workers
from loopline_shared.model import JobState, Order

_ADDED = ("tasks", *(column.name for column in WENT))


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
    fetch_s: float  # total time of accepted attempts until their inputs and software were there ...
    frozen_s: float  # ... while they were frozen ...
    deliver_s: float  # ... and from their ends until the master had their outputs
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
    parts = list(_parts(connection, job))
    sums = {name: sum(getattr(row, name) or 0 for _, row in parts) for name in _ADDED}
    slowest, _ = max(parts, key=lambda part: (part[1].slowest_s or 0.0, -part[0][0]))
    entered = job.entered_at or job.submitted_at
    held_until = job.released_at if job.released_at is not None else job.finished_at
    return JobHistory(
        chained_s=max(0.0, entered - job.submitted_at) if job.entered_at is not None else 0.0,
        queued_s=max(0.0, (job.started_at or job.finished_at or entered) - entered),
        held_s=max(0.0, (held_until or job.held_at) - job.held_at) if job.held_at is not None else 0.0,
        held_behind=_held_behind(connection, job),
        lost=sums["lost"],
        failed=sums["failed"],
        given_back=sums["given_back"],
        fetch_s=sums["fetch_s"],
        frozen_s=sums["frozen_s"],
        deliver_s=sums["deliver_s"],
        replicas_won=sums["replicas_won"],
        slowest=_slowest(connection, number, slowest, sums["accepted_s"] / (sums["tasks"] or 1)),
    )


def _parts(connection: Connection, job: Row[Any]) -> Iterator[tuple[Tasks, Row[Any]]]:
    """Yield the sums over all attempts of a job, for stretches of its tasks; most are known of a large job."""
    pieces: dict[int, Row[Any]] = {}
    if job.task_count >= job_sums.LARGE:
        kept = connection.execute(select(tables.job_sums).where(tables.job_sums.c.job == job.id))
        pieces = {row.piece: row for row in kept}
    yield from ((job_sums.tasks_of(piece, job.task_count), row) for piece, row in pieces.items())
    for stretch in job_sums.tasks_without(job.task_count, pieces):
        query = select(TASKS, *WENT).where(job_sums.among(job.id, stretch))
        yield stretch, connection.execute(query).one()


def _held_behind(connection: Connection, job: Row[Any]) -> int | None:
    """Return, of the jobs that this one could not pass while it was held, the last to leave."""
    if job.held_at is None:
        return None
    weight = job.shown if job.size is None else job.size
    query = select(jobs.c.id).where(
        jobs.c.arrival != UNRELEASED,
        jobs.c.arrival < job.arrival,
        jobs.c.order != Order.NONE,
        jobs.c.size.is_not(None) if weight is None else jobs.c.size <= weight,
        jobs.c.finished_at >= job.held_at,
        jobs.c.finished_at <= (job.released_at or job.finished_at or job.held_at),
        jobs.c.state.in_((JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)),
    )
    behind: int | None = connection.scalar(query.order_by(jobs.c.finished_at.desc()).limit(1))
    return behind


def _slowest(connection: Connection, job: int, among: Tasks, mean_s: float) -> Slowest | None:
    """Return the longest accepted attempt of these tasks."""
    query = (
        select(attempts.c.task, attempts.c.worker, attempts.c.wall_s, workers.c.facts)
        .outerjoin_from(attempts, workers, workers.c.name == attempts.c.worker)
        .where(job_sums.among(job, among), attempts.c.accepted)
        .order_by(attempts.c.wall_s.desc(), attempts.c.task)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.wall_s <= 0:
        return None
    speed = row.facts.speed if row.facts else 1.0
    return Slowest(row.task, row.worker, row.wall_s, speed, row.wall_s / mean_s if mean_s else 1.0)
