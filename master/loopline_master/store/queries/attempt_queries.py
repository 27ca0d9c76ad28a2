"""Attempts as users see them: where and when they ran, and their output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, or_, select, tuple_

from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, moment, page_of
from loopline_master.store.tables import attempts, checkpoints, jobs, resumptions
from loopline_shared.model import AttemptId, AttemptState, Output, Stream, TaskId
from loopline_shared.parallel import rank_of
from loopline_shared.rest.bodies import AttemptView, CheckpointView, Page, ResumedView

MAX_OF_TASK = 1000
"""The number of latest attempts in a task's detail."""

_BY_END = (attempts.c.accepted.desc(), attempts.c.ended_at.desc(), attempts.c.number.desc())
_BY_LAUNCH = (attempts.c.accepted.desc(), attempts.c.number.desc())
RESUMES = and_(*(resumptions.c[name] == attempts.c[name] for name in ("job", "task", "number")))
RESUMED = (
    resumptions.c.times,
    resumptions.c.line,
    resumptions.c.cpu_s.label("kept_cpu_s"),
    resumptions.c.wall_s.label("kept_wall_s"),
    resumptions.c.progress.label("kept_progress"),
)
"""Columns for ``resumed_view``."""
_ATTEMPTS = (
    select(attempts, jobs.c.nodes, *RESUMED)
    .join_from(attempts, jobs, jobs.c.id == attempts.c.job)
    .outerjoin(resumptions, RESUMES)
)
_key = tuple_(attempts.c.job, attempts.c.task, attempts.c.number)


class AttemptQueries:
    """Reads attempts."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def of_job(self, job: int, *, cursor: str | None = None, limit: int = 1000) -> Page[AttemptView]:
        """Return a page of a job's attempts, by id."""
        last = after(cursor, AttemptId.parse, AttemptId(job, 0, 0))
        query = _ATTEMPTS.where(attempts.c.job == job, _key > tuple_(*last))
        views = await self._views(query.order_by(*_key.clauses).limit(limit + 1))
        return page_of(views, limit, lambda attempt: attempt.id)

    async def between(
        self, since: float, until: float, *, cursor: str | None = None, limit: int = 1000
    ) -> Page[AttemptView]:
        """Return a page of the attempts that were on their worker between two moments, by dispatch."""
        last = after(cursor, _dispatch, (0.0, 0, 0, 0))
        query = _ATTEMPTS.where(
            attempts.c.dispatched_at < until,
            or_(attempts.c.ended_at.is_(None), attempts.c.ended_at >= since),
            tuple_(attempts.c.dispatched_at, *_key.clauses) > tuple_(*last),
        )
        views = await self._views(query.order_by(attempts.c.dispatched_at, *_key.clauses).limit(limit + 1))
        return page_of(views, limit, lambda attempt: f"{attempt.dispatched_at!r}@{attempt.id}")

    async def output(self, task: TaskId, stream: Stream, rank: int = 0) -> tuple[int, Output] | None:
        """Return the output of a task's decisive attempt, with that attempt's number; None if none has ended.

        The decisive attempt is the accepted one, else the last to end. Of a gang it is the member of this rank in the
        accepted launch, else in the last launch whose member ended.
        """
        of_task = (attempts.c.job == task.job, attempts.c.task == task.task, attempts.c[stream].is_not(None))
        found: Select[Any] = select(attempts.c.number, attempts.c[stream]).where(*of_task).limit(1)

        def work(connection: Connection) -> Sequence[Any] | None:
            nodes = connection.scalar(select(jobs.c.nodes).where(jobs.c.id == task.job)) or 1
            if nodes > 1:
                ranked = found.where((attempts.c.number - 1) % nodes == rank)
                return connection.execute(ranked.order_by(*_BY_LAUNCH)).first()
            return None if rank else connection.execute(found.order_by(*_BY_END)).first()

        row = await self._read(work)
        return None if row is None else (row[0], row[1])

    async def checkpoints(self, task: TaskId) -> list[CheckpointView]:
        """Return the checkpoints of a task, the one with the most work first."""
        query = select(checkpoints).where(checkpoints.c.job == task.job, checkpoints.c.task == task.task)
        query = query.order_by(checkpoints.c.work.desc())

        def work(connection: Connection) -> list[CheckpointView]:
            return [
                CheckpointView(**{**row._mapping, "attempt": AttemptId(row.job, row.task, row.attempt)})
                for row in connection.execute(query)
            ]

        return await self._read(work)

    async def _views(self, query: Select[Any]) -> list[AttemptView]:
        return await self._read(lambda connection: [_view(row) for row in connection.execute(query)])


def attempts_of_task(connection: Connection, task: TaskId) -> list[AttemptView]:
    """Return the latest attempts at a task."""
    query = _ATTEMPTS.where(attempts.c.job == task.job, attempts.c.task == task.task)
    rows = connection.execute(query.order_by(attempts.c.number.desc()).limit(MAX_OF_TASK)).all()
    return [_view(row) for row in reversed(rows)]


def why_failed(state: AttemptState | None, exit_code: int | None) -> str:
    """Return the reason of an attempt that failed and printed none on stderr; empty for any other attempt."""
    if state is not AttemptState.FAILED or not exit_code:
        return ""
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def resumed_view(row: Row[Any]) -> ResumedView | None:
    """Return the checkpoint that an attempt continued from; None if it began at the start."""
    if row.times is None:
        return None
    return ResumedView(
        times=row.times,
        worker=row.line[-1],
        cpu_s=row.kept_cpu_s,
        wall_s=row.kept_wall_s,
        progress=row.kept_progress,
    )


def _view(row: Row[Any]) -> AttemptView:
    return AttemptView(
        **{
            **row._mapping,
            "id": AttemptId(row.job, row.task, row.number),
            "reason": row.reason or why_failed(row.state, row.exit_code),
            "rank": rank_of(row.number, row.nodes) if row.nodes > 1 else None,
            "stdout_bytes": row.stdout.size_bytes if row.stdout else 0,
            "stderr_bytes": row.stderr.size_bytes if row.stderr else 0,
            "output_count": len(row.outputs or ()),
            "resumed": resumed_view(row),
        }
    )


def _dispatch(cursor: str) -> tuple[float, int, int, int]:
    at, _, attempt = cursor.partition("@")
    return moment(at), *AttemptId.parse(attempt)
