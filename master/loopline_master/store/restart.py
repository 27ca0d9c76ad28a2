"""Reads the rows that the scheduler continues with: all unfinished work after a restart; one job before a retry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select, tuple_

from loopline_master.core.events import JobRetried
from loopline_master.core.kernel.entities import Grid
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_master.store.rows import (
    ATTEMPTS,
    CARRIERS,
    CHECKPOINT_ACCOUNTS,
    CHECKPOINTS,
    GANGS,
    GRID,
    JOBS,
    LIMITS,
    PLANS,
    PROGRAMS,
    RESUMPTIONS,
    SLEEPERS,
    TASKS,
    USERS,
    WORKERS,
    Entity,
    Mapper,
)
from loopline_master.store.tables import attempts, checkpoint_accounts, checkpoints, jobs, plans, resumptions, tasks
from loopline_shared.model import TaskState

_OPEN = (TaskState.QUEUED, TaskState.RUNNING)
_live = jobs.c.departure.is_(None)
_not_over = attempts.c.ended_at.is_(None)
_kept_jobs = select(jobs.c.id).where(or_(_live, jobs.c.id.in_(select(attempts.c.job).where(_not_over))))
_open_tasks = select(tasks.c.job, tasks.c.number).where(
    tasks.c.job.in_(select(jobs.c.id).where(_live)), tasks.c.state.in_(_OPEN)
)
_lasting = select(attempts.c.job, attempts.c.task, attempts.c.number).where(_not_over)
_occupied_tasks = select(attempts.c.job, attempts.c.task).where(_not_over)


def snapshot(connection: Connection) -> Snapshot:
    """Return the entities of everything unfinished."""
    task = tuple_(tasks.c.job, tasks.c.number)
    resumption, account = (
        tuple_(*(table.c[name] for name in ("job", "task", "number"))) for table in (resumptions, checkpoint_accounts)
    )
    grids = _all(connection, GRID)
    return Snapshot(
        grid=grids[0] if grids else Grid(),
        jobs=_all(connection, JOBS, jobs.c.id.in_(_kept_jobs)),
        tasks=_all(connection, TASKS, or_(task.in_(_open_tasks), task.in_(_occupied_tasks))),
        attempts=_all(connection, ATTEMPTS, _not_over),
        workers=_all(connection, WORKERS),
        started=_ranges(connection, tasks.c.job.in_(_kept_jobs), tasks.c.started),
        programs=_all(connection, PROGRAMS),
        gangs=_all(connection, GANGS),
        plans=_all(connection, PLANS, plans.c.started_at.is_(None), plans.c.withdrawn_at.is_(None)),
        carriers=_all(connection, CARRIERS),
        users=_all(connection, USERS),
        limits=_all(connection, LIMITS),
        checkpoints=_all(connection, CHECKPOINTS, checkpoints.c.job.in_(select(jobs.c.id).where(_live))),
        resumed=_all(connection, RESUMPTIONS, resumption.in_(_lasting)),
        checkpoint_accounts=_all(connection, CHECKPOINT_ACCOUNTS, account.in_(_lasting)),
        sleepers=_all(connection, SLEEPERS),
    )


def retry_material(connection: Connection, job: int, only: Collection[int] = ()) -> JobRetried | None:
    """Return the event that retries a job; None if there is no such job. ``only``: not the other failed tasks."""
    found = _all(connection, JOBS, jobs.c.id == job)
    if not found:
        return None
    here, again = tasks.c.job == job, tasks.c.state != TaskState.SUCCEEDED
    if only:
        again &= tasks.c.number.in_(only)
    left = connection.scalar(select(func.count()).where(here, ~again, tasks.c.state == TaskState.FAILED)) or 0
    ranges = _ranges(connection, here, ~again)
    return JobRetried(found[0], _all(connection, TASKS, here, again), ranges.get(job, []), failed=left)


def kept_checkpoints(connection: Connection, job: int, only: Collection[int] = ()) -> list[SavedCheckpoint]:
    """Return the checkpoints of a job's tasks, or ``only`` of these."""
    here = [checkpoints.c.job == job]
    return _all(connection, CHECKPOINTS, *here, *([checkpoints.c.task.in_(only)] if only else []))


def _all(connection: Connection, mapper: Mapper[Entity], *where: ColumnElement[bool]) -> list[Entity]:
    query = mapper.select().where(*where).order_by(*mapper.table.primary_key)
    return [mapper.entity(row) for row in connection.execute(query)]


def _ranges(connection: Connection, *where: ColumnElement[bool]) -> dict[int, list[tuple[int, int]]]:
    """Return, by job, the numbers of these tasks as half-open ranges."""
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for job, start, stop in connection.execute(_islands(*where)):
        ranges[job].append((start, stop))
    return dict(ranges)


def _islands(*where: ColumnElement[bool]) -> Select[Any]:
    """Return the query for runs of consecutive numbers: within a run, number and rank have a constant difference."""
    rank = func.row_number().over(partition_by=tasks.c.job, order_by=tasks.c.number)
    ranked = select(tasks.c.job, tasks.c.number, (tasks.c.number - rank).label("island")).where(*where).subquery()
    return (
        select(ranked.c.job, func.min(ranked.c.number), func.max(ranked.c.number) + 1)
        .group_by(ranked.c.job, ranked.c.island)
        .order_by(ranked.c.job, func.min(ranked.c.number))
    )
