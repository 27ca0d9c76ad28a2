"""The results of a job, one by one as its tasks finish."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import Row, select, tuple_

from master.store.database import Transact
from master.store.pages import after, moment, number
from master.store.row_source import Rows, no_rows
from master.store.tables import attempts, specs, tasks
from master.store.tasks import TASK_ROWS, task_fields
from shared.api import TaskResult
from shared.model import Output, TaskState
from shared.scalar import Scalar
from shared.spec import JobSpec
from shared.sweep import task_at

CHUNK = 100
_FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)

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

    async def _spec(self, job: int) -> JobSpec | None:
        query = select(specs.c.spec).where(specs.c.job == job)
        spec: JobSpec | None = await self._read(lambda connection: connection.scalar(query))
        return spec

    async def _chunk(self, job: int, last: tuple[float, int]) -> Sequence[Row[Any]]:
        key = tuple_(tasks.c.finished_at, tasks.c.number)
        query = TASK_ROWS.add_columns(attempts.c.stdout, attempts.c.value).where(
            tasks.c.job == job, key > tuple_(*last)
        )
        query = query.where(tasks.c.state.in_(_FINISHED)).order_by(*key.clauses).limit(CHUNK)
        return await self._read(lambda connection: connection.execute(query).all())


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
