"""References to files: outputs of tasks, all names that keep files from being deleted, and jobs whose files are
gone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    case,
    delete,
    exists,
    insert,
    or_,
    select,
    tuple_,
    type_coerce,
)

from loopline_master.store.database import Transact
from loopline_master.store.tables import attempts, jobs, removals, specs, tasks
from loopline_shared.model import OutputFile, TaskId

CHUNK = 100
_NAME = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MANY = 1000
_HAS_NAME = '%"sha256":"%'
_NAMING = (attempts.c.stdout, attempts.c.stderr, attempts.c.value)
_is_accepted = (attempts.c.job == tasks.c.job) & (attempts.c.task == tasks.c.number) & attempts.c.accepted
_other = attempts.alias("other")
_rank = case(  # of a gang's member; other tasks have one accepted attempt, and no member beside it
    (
        exists().where(
            _other.c.job == attempts.c.job,
            _other.c.task == attempts.c.task,
            _other.c.number == tasks.c.winner + 1,
            _other.c.accepted,
        ),
        attempts.c.number - tasks.c.winner,
    ),
).label("rank")
_is_kept = jobs.c.id.not_in(select(removals.c.job))


class TaskFiles(NamedTuple):
    """The output files of a task's accepted attempt, or of a member of its gang: these are in folders by rank."""

    number: int
    finished_at: float
    outputs: tuple[OutputFile, ...]


class Removal(NamedTuple):
    """The time and the reason of the removal of a job's files."""

    at: float
    reason: str


class Named(NamedTuple):
    """Text of a row in which files may be named by their SHA-256. ``task`` 0: it is of the job as a whole."""

    job: int
    task: int
    text: str

    def names(self) -> list[str]:
        """Return the names of the files."""
        return _NAME.findall(self.text)


class FileReferences:
    """Reads and releases the names of files in the rows."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def of_task(self, task: TaskId) -> tuple[OutputFile, ...] | None:
        """Return the outputs of a task; None if no attempt at it has been accepted."""
        query = select(attempts.c.outputs, _rank).join_from(tasks, attempts, _is_accepted)
        query = query.where(tasks.c.job == task.job, tasks.c.number == task.task).order_by(attempts.c.number)
        rows = await self._rows(query)
        return tuple(file for row in rows for file in _ranked(row)) if rows else None

    async def of_job(self, job: int) -> AsyncGenerator[TaskFiles, None]:
        """Generate the outputs of a job's tasks, by number."""
        key, last = tuple_(tasks.c.number, attempts.c.number), (0, 0)
        while True:
            attempt = attempts.c.number.label("attempt")
            query = select(tasks.c.number, tasks.c.finished_at, attempts.c.outputs, attempt, _rank)
            query = query.join_from(tasks, attempts, _is_accepted).where(tasks.c.job == job, key > tuple_(*last))
            query = query.where(attempts.c.outputs.is_not(None)).order_by(*key.clauses).limit(CHUNK)
            rows = await self._rows(query)
            for row in rows:
                last = (row.number, row.attempt)
                yield TaskFiles(row.number, row.finished_at, _ranked(row))
            if len(rows) < CHUNK:
                return

    async def removal(self, job: int) -> Removal | None:
        """Return when and why the files of a job were removed; None if they are retained."""
        query = select(removals.c.at, removals.c.reason).where(removals.c.job == job)
        row = await self._read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else Removal(*row)

    async def name_any(self, job: int) -> bool:
        """True if any attempt of a job has named a file."""
        query = select(attempts.c.task).where(attempts.c.job == job, _names_files()).limit(1)
        return await self._read(lambda connection: connection.execute(query).first()) is not None

    async def expired(self, before: float) -> list[int]:
        """Return the jobs that ended before this moment, and whose files are still retained."""
        query = select(jobs.c.id).where(jobs.c.departure.is_not(None), jobs.c.finished_at < before)
        query = query.where(_is_kept).order_by(jobs.c.id)
        return await self._read(lambda connection: list(connection.scalars(query)))

    async def release(self, expired: Sequence[int], at: float, reason: str) -> None:
        """Release the files of these jobs, except of jobs that have been retried meanwhile."""

        def work(connection: Connection) -> None:
            for start in range(0, len(expired), _MANY):
                here = jobs.c.id.in_(expired[start : start + _MANY])
                over = connection.scalars(select(jobs.c.id).where(here, jobs.c.departure.is_not(None)))
                rows = [{"job": job, "at": at, "reason": reason} for job in over]
                if rows:
                    connection.execute(insert(removals), rows)

        await self._write(work)

    async def retain_again(self, job: int) -> None:
        """Retain the files of a job again, which has named none so far and is about to be retried."""
        statement = delete(removals).where(removals.c.job == job)
        await self._write(lambda connection: connection.execute(statement))

    async def named(self, without: frozenset[int] = frozenset()) -> AsyncGenerator[Named, None]:
        """Generate all text in the rows that may name files of jobs whose files are retained."""
        last = 0
        while True:
            query = select(jobs.c.id, jobs.c.inputs, type_coerce(specs.c.spec, Text).label("spec"))
            query = query.join_from(jobs, specs).where(jobs.c.id > last, or_(jobs.c.departure.is_(None), _is_kept))
            rows = await self._rows(query.order_by(jobs.c.id).limit(CHUNK))
            for row in rows:
                last = row.id
                if row.id not in without:
                    yield Named(row.id, 0, f"{row.inputs} {row.spec}")
                    async for named in self._of_attempts(row.id):
                        yield named
            if len(rows) < CHUNK:
                return

    async def name_some(self) -> bool:
        """True if any job whose files are retained names a file."""
        async with aclosing(self.named()) as rows:
            async for named in rows:
                if named.names():
                    return True
        return False

    async def _of_attempts(self, job: int) -> AsyncGenerator[Named, None]:
        key = tuple_(attempts.c.task, attempts.c.number)
        texts = [type_coerce(column, Text) for column in (*_NAMING, attempts.c.outputs)]
        last = (0, 0)
        while True:
            columns: list[Any] = [attempts.c.task, attempts.c.number, *texts]
            query = select(*columns).where(attempts.c.job == job, _names_files(), key > tuple_(*last))
            rows = await self._rows(query.order_by(*key.clauses).limit(_MANY))
            for row in rows:
                last = (row.task, row.number)
                yield Named(job, row.task, " ".join(filter(None, row[2:])))
            if len(rows) < _MANY:
                return

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        return await self._read(lambda connection: connection.execute(query).all())


def _ranked(row: Row[Any]) -> tuple[OutputFile, ...]:
    """Return the outputs of an attempt; those of a gang's member in a folder that is called as its rank."""
    outputs: tuple[OutputFile, ...] = row.outputs or ()
    return outputs if row.rank is None else tuple(replace(one, path=f"{row.rank}/{one.path}") for one in outputs)


def _names_files() -> ColumnElement[bool]:
    """Return the condition under which an attempt names files."""
    return or_(attempts.c.outputs.is_not(None), *(type_coerce(column, Text).like(_HAS_NAME) for column in _NAMING))
