"""The results of a job, in the order of its tasks' ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select, tuple_

from loopline_master.store.database import Transact
from loopline_master.store.queries.attempt_queries import why_failed
from loopline_master.store.queries.paging import after, moment, number
from loopline_master.store.queries.task_queries import TASK_ROWS, TOLD_BY, task_fields
from loopline_master.store.row_source import Rows, no_rows
from loopline_master.store.tables import attempts, jobs, specs, tasks
from loopline_shared.model import JobState, Output, TaskState
from loopline_shared.protocol.client_link import TaskEnd
from loopline_shared.rest.bodies import TaskResult
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import task_at

CHUNK = 500
_AT_ONCE = 2
"""Pages of results that are made at a time, for all readers together: each blocks the event loop for some 30 ms, and
workers or the master's end should not have to wait for all readers.
"""
_FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)


def _finished(query: Select[Any]) -> Select[Any]:
    """Return the query for ``most`` tasks of ``of_job`` that finished after ``last_at`` and ``last_number``."""
    key, last = tuple_(tasks.c.finished_at, tasks.c.number), tuple_(bindparam("last_at"), bindparam("last_number"))
    query = query.where(tasks.c.job == bindparam("of_job"), key > last, tasks.c.state.in_(_FINISHED))
    return query.order_by(*key.clauses).limit(bindparam("most"))


def _which(job: int, last: tuple[float, int], most: int) -> dict[str, float]:
    """Return the parameters of a query for finished tasks."""
    return {"of_job": job, "last_at": last[0], "last_number": last[1], "most": most}


# Statements are made once: making one takes longer than running it.
_ENDS = _finished(select(
    tasks.c.number, tasks.c.state, tasks.c.verdict, tasks.c.finished_at,
    attempts.c.worker, attempts.c.exit_code, attempts.c.reason, attempts.c.value,
    attempts.c.state.label("attempt_state"),
).outerjoin_from(tasks, attempts, TOLD_BY))  # fmt: skip
_RESULTS = _finished(TASK_ROWS.add_columns(attempts.c.stdout, attempts.c.value))
_STATE = select(jobs.c.state, jobs.c.departure).where(jobs.c.id == bindparam("of_job"))
_ENDED_AT = select(jobs.c.finished_at).where(jobs.c.id == bindparam("of_job"))
_SPEC = select(specs.c.spec).where(specs.c.job == bindparam("of_job"))

Read = Callable[[Output], Awaitable[bytes]]
"""Reads the stored output, or its beginning."""


class ResultQueries:
    """Reads results."""

    def __init__(self, read: Transact) -> None:
        self._read, self._turns = read, asyncio.Semaphore(_AT_ONCE)

    def of_job(self, job: int, read: Read, *, cursor: str | None = None, lines: Rows = no_rows) -> JobResults:
        """Return a reader of the results after the cursor."""
        return JobResults(self._read, self._turns, job, last=after(cursor, _finish, (0.0, 0)), read=read, lines=lines)

    async def ends(
        self, job: int, after: tuple[float, int], limit: int = 500
    ) -> tuple[JobState | None, bool, list[tuple[TaskEnd, tuple[float, int]]]]:
        """Return a job's state (None: no such job), True if it is over, and its tasks that finished after the
        cursor.

        The tasks come in order, each with its own cursor.
        """
        asked = _which(job, after, limit)

        def work(connection: Connection) -> tuple[JobState | None, bool, list[tuple[TaskEnd, tuple[float, int]]]]:
            found = connection.execute(_STATE, {"of_job": job}).one_or_none()
            rows = connection.execute(_ENDS, asked).all() if found else ()
            ends = [(_end(row), (row.finished_at, row.number)) for row in rows]
            return (found.state, found.departure is not None, ends) if found else (None, True, [])

        async with self._turns:
            return await self._read(work)


class JobResults:
    """Reads the results of one job in the order of its tasks' ends, each with the cursor to continue after it.

    No transaction is open between two reads: a slow reader delays no writer.
    """

    def __init__(
        self,
        transact: Transact,
        turns: asyncio.Semaphore,
        job: int,
        *,
        last: tuple[float, int],
        read: Read,
        lines: Rows,
    ) -> None:
        """``turns``: those of all readers."""
        self.is_over = False
        """True if the last call of ``next`` returned the last results of the job."""
        self.is_unknown = False
        """True if there is no such job."""
        self.last = last
        """The cursor of the last result that was returned: ``next`` continues after it."""
        self._transact, self._turns, self._job = transact, turns, job
        self._read, self._lines = read, lines
        self._spec: JobSpec | None = None

    async def __aiter__(self) -> AsyncIterator[tuple[str, TaskResult]]:
        while found := await self.next():
            for each in found:
                yield each

    async def next(self) -> list[tuple[str, TaskResult]]:
        """Return some of the results stored by now; an empty list if all of them were returned before."""
        async with self._turns:
            return await self._page()

    async def _page(self) -> list[tuple[str, TaskResult]]:
        of_job, asked = {"of_job": self._job}, _which(self._job, self.last, CHUNK)

        def work(connection: Connection) -> tuple[bool, JobSpec | None, Sequence[Row[Any]]]:
            ended_at = connection.execute(_ENDED_AT, of_job).one_or_none()
            spec = self._spec or connection.scalar(_SPEC, of_job)
            return ended_at is None or ended_at[0] is not None, spec, connection.execute(_RESULTS, asked).all()

        is_over, self._spec, rows = await self._transact(work)
        self.is_over = is_over and len(rows) < CHUNK
        self.is_unknown = self._spec is None
        if self._spec is None or not rows:
            return []
        of_tasks = await self._lines(self._spec, [row.number for row in rows])
        self.last = rows[-1].finished_at, rows[-1].number
        return [await self._result(self._spec, row, of_tasks.get(row.number)) for row in rows]

    async def _result(
        self, spec: JobSpec, row: Row[Any], line: Mapping[str, Scalar] | None
    ) -> tuple[str, TaskResult]:
        parameters = task_at(spec, row.number, line).parameters
        return f"{row.finished_at!r}@{row.number}", await _result(row, parameters, self._read)


def _end(row: Row[Any]) -> TaskEnd:
    reason = row.verdict or row.reason or why_failed(row.attempt_state, row.exit_code)
    return TaskEnd(
        number=row.number,
        state=row.state,
        worker=row.worker,
        exit_code=row.exit_code,
        reason=reason,
        value=row.value,
    )


async def _result(task: Row[Any], parameters: dict[str, Scalar], read: Read) -> TaskResult:
    output: Output = task.stdout or Output()
    data = await read(output)
    return TaskResult(
        **{
            **task_fields(task),
            "parameters": parameters,
            "stdout": data.decode(errors="replace"),
            "stdout_cut": output.cut or len(data) < output.size_bytes,
            "value": task.value,
        }
    )


def _finish(cursor: str) -> tuple[float, int]:
    at, _, task = cursor.partition("@")
    return moment(at), number(task)
