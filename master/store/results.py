"""The results of a job, one by one as its tasks finish."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, select, tuple_

from master.store.database import Transact
from master.store.pages import after, moment, number
from master.store.row_source import Rows, no_rows
from master.store.tables import attempts, jobs, specs, tasks
from master.store.tasks import TASK_ROWS, TOLD_BY, task_fields
from shared.api import TaskResult
from shared.calls import TaskEnd
from shared.model import JobState, Output, TaskState
from shared.scalar import Scalar
from shared.spec import JobSpec
from shared.sweep import task_at

CHUNK = 100
_FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)
ENDS = select(
    tasks.c.number, tasks.c.state, tasks.c.verdict, tasks.c.finished_at,
    attempts.c.worker, attempts.c.exit_code, attempts.c.reason, attempts.c.value,
).outerjoin_from(tasks, attempts, TOLD_BY)  # fmt: skip

Read = Callable[[Output], Awaitable[bytes]]
"""Gets what was kept of an output, or the beginning of it."""


class Results:
    def __init__(self, read: Transact) -> None:
        self._read = read

    async def of_job(
        self, job: int, read: Read, *, cursor: str | None = None, lines: Rows = no_rows
    ) -> AsyncIterator[tuple[str, TaskResult]]:
        """Results of the tasks that have finished by now, in that order, each with the cursor to go on after it.

        Nothing is held open meanwhile: a slow reader keeps nobody from anything.
        """
        last = after(cursor, _finish, (0.0, 0))
        spec = await self._spec(job)
        while spec is not None:
            rows = await self._chunk(job, last)
            of_tasks = await lines(spec, [row.number for row in rows])
            for row in rows:
                last = row.finished_at, row.number
                parameters = task_at(spec, row.number, of_tasks.get(row.number)).parameters
                yield f"{row.finished_at!r}@{row.number}", await _result(row, parameters, read)
            if len(rows) < CHUNK:
                return

    async def ends(
        self, job: int, after: tuple[float, int], limit: int = 500
    ) -> tuple[JobState | None, bool, list[tuple[TaskEnd, tuple[float, int]]]]:
        """The job's state (None: there is no such job), whether it is over, and tasks that have finished after that
        cursor, in order, each with its own.
        """
        query = _finished(ENDS, job, after, limit)
        of_job = select(jobs.c.state, jobs.c.departure).where(jobs.c.id == job)

        def work(connection: Connection) -> tuple[JobState | None, bool, list[tuple[TaskEnd, tuple[float, int]]]]:
            found = connection.execute(of_job).one_or_none()
            rows = connection.execute(query).all() if found else ()
            ends = [(_end(row), (row.finished_at, row.number)) for row in rows]
            return (found.state, found.departure is not None, ends) if found else (None, True, [])

        return await self._read(work)

    async def _spec(self, job: int) -> JobSpec | None:
        query = select(specs.c.spec).where(specs.c.job == job)
        spec: JobSpec | None = await self._read(lambda connection: connection.scalar(query))
        return spec

    async def _chunk(self, job: int, last: tuple[float, int]) -> Sequence[Row[Any]]:
        query = _finished(TASK_ROWS.add_columns(attempts.c.stdout, attempts.c.value), job, last, CHUNK)
        return await self._read(lambda connection: connection.execute(query).all())


def _finished(query: Select[Any], job: int, last: tuple[float, int], limit: int) -> Select[Any]:
    key = tuple_(tasks.c.finished_at, tasks.c.number)
    query = query.where(tasks.c.job == job, key > tuple_(*last), tasks.c.state.in_(_FINISHED))
    return query.order_by(*key.clauses).limit(limit)


def _end(row: Row[Any]) -> TaskEnd:
    reason = row.verdict or row.reason or ""
    return TaskEnd(row.number, row.state, row.worker, row.exit_code, reason, row.value)


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
