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
    Column,
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
from loopline_master.store.tables import attempts, checkpoints, jobs, removals, specs, tasks
from loopline_shared.model import OutputFile, TaskId, TaskState
from loopline_shared.parallel import MAX_NODES

CHUNK = 100
CHECKPOINT = "checkpoint:"
"""Precedes the name of a manifest (loopline_shared/protocol/saved_state.py), which names more files."""
NAME = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MANY = 1000
_HAS_NAME = '%"sha256":"%'
_HAS_FILE = "%sha256:%"
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
_is_kept = ~exists().where(removals.c.job == jobs.c.id)
_is_retained = or_(jobs.c.departure.is_(None), _is_kept)


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
    """Text of a row that may name files by their SHA-256. ``task`` 0: it is of the job as a whole."""

    job: int
    task: int
    text: str

    def names(self) -> list[str]:
        """Return the names of the files."""
        return NAME.findall(self.text)


class FileReferences:
    """Reads and releases the names of files in the rows."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def of_task(self, task: TaskId) -> tuple[OutputFile, ...] | None:
        """Return the outputs of a task: of its accepted attempt; of a failed task, the ones of its last attempt.

        None if no attempt at it was accepted, and it has not failed or has left nothing.
        """
        query = select(attempts.c.outputs, _rank).join_from(tasks, attempts, _is_accepted)
        query = query.where(tasks.c.job == task.job, tasks.c.number == task.task).order_by(attempts.c.number)
        rows = await self._rows(query) or await self._left_by_failed(task)
        return tuple(file for row in rows for file in _ranked(row)) if rows else None

    async def _left_by_failed(self, task: TaskId) -> Sequence[Row[Any]]:
        """Return the outputs of a failed task's last attempt that left any; of a gang, those of its last launch."""
        launch = (attempts.c.number - 1) // jobs.c.nodes
        rank = case((jobs.c.nodes > 1, (attempts.c.number - 1) % jobs.c.nodes)).label("rank")
        query = select(attempts.c.outputs, rank, launch.label("launch")).join_from(
            attempts, jobs, jobs.c.id == attempts.c.job
        )
        query = query.join(tasks, (tasks.c.job == attempts.c.job) & (tasks.c.number == attempts.c.task))
        query = query.where(
            attempts.c.job == task.job,
            attempts.c.task == task.task,
            attempts.c.outputs.is_not(None),
            tasks.c.state == TaskState.FAILED,
        )
        rows = await self._rows(query.order_by(attempts.c.number.desc()).limit(MAX_NODES))
        return [row for row in reversed(rows) if row.launch == rows[0].launch]

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
        """Release the files of these jobs, except of jobs that were retried since then."""

        def work(connection: Connection) -> None:
            for start in range(0, len(expired), _MANY):
                here = jobs.c.id.in_(expired[start : start + _MANY])
                over = connection.scalars(select(jobs.c.id).where(here, jobs.c.departure.is_not(None)))
                rows = [{"job": job, "at": at, "reason": reason} for job in over]
                if rows:
                    connection.execute(insert(removals), rows)

        await self._write(work)

    async def retain_again(self, job: int) -> None:
        """Retain the files of a job again before its retry; an ended job retains none."""
        statement = delete(removals).where(removals.c.job == job)
        await self._write(lambda connection: connection.execute(statement))

    async def is_left(self, job: int, sha256: str) -> bool:
        """True if the file is an output of an attempt of the job that was not accepted."""
        is_named = type_coerce(attempts.c.outputs, Text).like(f"%{sha256}%")
        query = select(attempts.c.task).where(attempts.c.job == job, ~attempts.c.accepted, is_named).limit(1)
        return await self._read(lambda connection: connection.execute(query).first()) is not None

    async def named(
        self, without: frozenset[int] = frozenset(), left_since: float = 0.0
    ) -> AsyncGenerator[Named, None]:
        """Generate all text in the rows that may name files of jobs whose files are retained.

        Outputs of attempts that were not accepted, and ended before ``left_since``, are not retained. The rows of all
        jobs are read together: most name no file, and a query for each job would cost more than them.
        """
        async for row in self._by_key((jobs.c.id,), _spec_texts()):
            if row.id not in without:
                yield Named(row.id, 0, f"{row.inputs} {row.spec}")
        async for row in self._by_key(tuple(checkpoints.primary_key), _checkpoint_names()):
            if row.job not in without:
                yield Named(row.job, row.task, f"{CHECKPOINT}{row.manifest}")
        key = (attempts.c.job, attempts.c.task, attempts.c.number)
        async for row in self._by_key(key, _attempt_texts(left_since)):
            if row.job not in without:
                yield Named(row.job, row.task, " ".join(filter(None, row[3:])))

    async def name_some(self) -> bool:
        """True if any job whose files are retained names a file."""
        async with aclosing(self.named()) as rows:
            async for named in rows:
                if named.names():
                    return True
        return False

    async def _by_key(self, key: Sequence[Column[Any]], query: Select[Any]) -> AsyncGenerator[Row[Any], None]:
        """Generate a query's rows in order of their first column, in small parts, so that other work continues."""
        query = query.order_by(*key).limit(_MANY)
        following = query.where(key[0] > 0)
        while True:
            rows = await self._rows(following)
            for row in rows:
                yield row
            if len(rows) < _MANY:
                return
            following = query.where(tuple_(*key) > tuple_(*rows[-1][: len(key)]))

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        return await self._read(lambda connection: connection.execute(query).all())


def _ranked(row: Row[Any]) -> tuple[OutputFile, ...]:
    """Return the outputs of an attempt; those of a gang's member in a folder that is called as its rank."""
    outputs: tuple[OutputFile, ...] = row.outputs or ()
    return outputs if row.rank is None else tuple(replace(one, path=f"{row.rank}/{one.path}") for one in outputs)


def _names_files() -> ColumnElement[bool]:
    """Return the condition under which an attempt names files."""
    return or_(attempts.c.outputs.is_not(None), *(type_coerce(column, Text).like(_HAS_NAME) for column in _NAMING))


def _spec_texts() -> Select[Any]:
    """Return the query for jobs that name files, and are in the grid or have theirs retained."""
    spec = type_coerce(specs.c.spec, Text).label("spec")
    query = select(jobs.c.id, jobs.c.inputs, spec).join_from(jobs, specs)
    return query.where(or_(jobs.c.inputs.is_not(None), spec.like(_HAS_FILE)), _is_retained)


def _checkpoint_names() -> Select[Any]:
    """Return the query for the checkpoints of such jobs."""
    query = select(checkpoints.c.job, checkpoints.c.task, checkpoints.c.manifest)
    return query.join_from(checkpoints, jobs, jobs.c.id == checkpoints.c.job).where(_is_retained)


def _attempt_texts(left_since: float) -> Select[Any]:
    """Return the query for attempts that name files, of such jobs."""
    is_kept = or_(attempts.c.accepted, attempts.c.ended_at.is_(None), attempts.c.ended_at >= left_since)
    outputs = case((is_kept, type_coerce(attempts.c.outputs, Text))).label("outputs")
    texts = [*(type_coerce(column, Text) for column in _NAMING), outputs]
    query = select(attempts.c.job, attempts.c.task, attempts.c.number, *texts)
    return query.join_from(attempts, jobs, jobs.c.id == attempts.c.job).where(_names_files(), _is_retained)
