"""Entities to rows and back, by the names of their fields: the same code writes, restores and replays.

The SQL for the rows of every task is made once, and values go to the driver directly (Statement).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Connection, Dialect, Row, Select, Table, bindparam, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable

from loopline_master.core.effects import Effects, Submitted
from loopline_master.core.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.gangs.gang import Gang
from loopline_master.core.index.exemptions import Exemption
from loopline_master.core.planning.plan import BROKEN, Plan
from loopline_master.core.runs import Observation, ProgramKey, key_of
from loopline_master.core.shares.user import User
from loopline_master.core.transfers.carrier import Carrier
from loopline_master.core.transitions import END
from loopline_master.store import tables
from loopline_master.store.tables import encoder
from loopline_shared.model import AttemptId, Facts

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

EncodedRow = Iterable[Any]
"""Values in the order of a statement's parameters, encoded for the database."""

_NOTHING: tuple[()] = ()
Entity = TypeVar("Entity")
Values = dict[str, Any]
"""A row: its values by column."""


class Statement:
    """A statement whose text ``make`` builds for a dialect's name, once."""

    def __init__(self, make: Callable[[str], Executable]) -> None:
        self._make = make
        self._compiled: dict[str, tuple[str, Any]] = {}

    def run_named(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Run the statement with values by the names of its parameters, beside those in its text."""
        _, compiled = self.of(connection.dialect)
        run(connection, [(self, [itemgetter(*compiled.positiontup)({**compiled.params, **row}) for row in rows])])

    def of(self, dialect: Dialect) -> tuple[str, Any]:
        """Return its text for a dialect, and what it was compiled to."""
        if dialect.name not in self._compiled:
            compiled = self._make(dialect.name).compile(dialect=dialect)  # type: ignore[attr-defined]
            self._compiled[dialect.name] = compiled.string, compiled
        return self._compiled[dialect.name]


def run(connection: Connection, writes: Iterable[Write]) -> None:
    """Run statements, each for its rows. SQLite's own errors are raised unchanged."""
    dialect = connection.dialect
    driver: Any = connection.connection.driver_connection if dialect.name == "sqlite" else None
    for statement, rows in writes:
        text, _ = statement.of(dialect)
        if driver is None:
            connection.exec_driver_sql(text, [tuple(row) for row in rows])
        else:
            driver.executemany(text, rows)


def insert_into(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT for this dialect."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes long to import, and SQLite does without

        return postgresql.insert(table)
    return sqlite.insert(table)


@cache
def upsert(table: Table) -> Statement:
    """Return a statement that inserts or replaces rows with a value for each column, in the table's order."""

    def make(dialect: str) -> Executable:
        statement, key = insert_into(table, dialect), list(table.primary_key)
        rest = {column.name: statement.excluded[column.name] for column in table.columns if column not in key}
        return statement.on_conflict_do_update(index_elements=key, set_=rest)

    return Statement(make)


def change(table: Table, fixed: Collection[str]) -> Statement:
    """Return a statement that changes existing rows: values of columns not ``fixed``, then the key."""
    here = [column == bindparam(f"of_{column.name}") for column in table.primary_key]
    names = order_of_change(table, fixed)[: -len(here)]
    statement = update(table).where(*here).values({name: bindparam(f"new_{name}") for name in names})
    return Statement(lambda _: statement)


def order_of_change(table: Table, fixed: Collection[str]) -> list[str]:
    """Return the columns whose values ``change`` takes, in its order."""
    changing = [column for column in table.columns if column.name not in fixed and not column.primary_key]
    return [column.name for column in (*changing, *table.primary_key)]


Write = tuple[Statement, list[Any]]
"""A statement, and its rows."""


class Mapper(Generic[Entity]):
    """Mapper between one kind of entity and the rows of its table."""

    def __init__(self, kind: type[Entity], table: Table, columns: Mapping[str, str] | None = None) -> None:
        """``columns``: the path of each value in an entity; needed if columns are not named as fields are."""
        names = [field.name for field in fields(kind) if field.init and field.name in table.c]  # type: ignore[arg-type]
        self._kind = kind
        self._paths = columns or {name: name for name in names}
        self._values: Callable[[Entity], tuple[Any, ...]] = attrgetter(*self._paths.values())
        self._encoders = [
            (place, encode) for place, name in enumerate(self._paths) if (encode := encoder(table.c[name]))
        ]
        self.table = table

    def values(self, entities: Iterable[Entity]) -> list[Values]:
        """Return the entities' present values as rows, by column."""
        return [dict(zip(self._paths, self._values(entity), strict=True)) for entity in entities]

    def encoded(self, entities: Iterable[Entity]) -> list[list[Any]]:
        """Return rows as the database keeps them, in the order of the columns."""
        rows = [list(self._values(entity)) for entity in entities]
        for place, encode in self._encoders:
            for row in rows:
                if (value := row[place]) is not None:
                    row[place] = "[]" if value is _NOTHING else encode(value)
        return rows

    def select(self) -> Select[Any]:
        return select(*(self.table.c[name] for name in self._paths))

    def entity(self, row: Row[Any]) -> Entity:
        return self._kind(**row._mapping)


class _JobMapper(Mapper[Job]):
    """Mapper of jobs. A job is read together with its spec, which is written once."""

    def select(self) -> Select[Any]:
        return super().select().add_columns(tables.specs.c.spec).join_from(tables.jobs, tables.specs)


class _SpecMapper(Mapper[Job]):
    """Mapper of specs, which are listed under the name that their user gave, else under their program's."""

    def __init__(self) -> None:
        super().__init__(Job, tables.specs, {"job": "id", "name": "spec.name", "spec": "spec"})
        self._values = lambda job: (job.id, job.spec.name or key_of(job.owner, job.spec)[1], job.spec)


class _GridMapper(Mapper[Grid]):
    """Mapper of the grid, the only row of its table."""

    def values(self, entities: Iterable[Grid]) -> list[Values]:
        return [{"id": 1, **row} for row in super().values(entities)]

    def encoded(self, entities: Iterable[Grid]) -> list[list[Any]]:
        return [[1, *row] for row in super().encoded(entities)]


GRID = _GridMapper(Grid, tables.grid)
JOBS = _JobMapper(Job, tables.jobs)
SPECS = _SpecMapper()
TASKS = Mapper(Task, tables.tasks)
ATTEMPTS = Mapper(Attempt, tables.attempts)
WORKERS = Mapper(Worker, tables.workers)
PROGRAMS = Mapper(Program, tables.programs)
GANGS = Mapper(Gang, tables.gangs)
PLANS = Mapper(Plan, tables.plans)
CARRIERS = Mapper(Carrier, tables.carriers)
USERS = Mapper(User, tables.users)
EXEMPTIONS = Mapper(Exemption, tables.exemptions)
_FIXED = ("worker", "slots", "replica", "dispatched_at", "expected_s")
"""Columns of an attempt that never change."""
_CHANGE_ATTEMPTS = change(tables.attempts, _FIXED)
_CHANGED_ATTEMPTS = Mapper(
    Attempt, tables.attempts, {name: name for name in order_of_change(tables.attempts, _FIXED)}
)
_SAID = ("facts", "joined_at")
"""Columns of a worker that change only as it joins."""
_CHANGE_WORKERS = change(tables.workers, _SAID)
_CHANGED_WORKERS = Mapper(Worker, tables.workers, {name: name for name in order_of_change(tables.workers, _SAID)})
_LEARNT = ("first_run_at", "window", "strange", "changed_at")
"""Columns of a program that change only with its window."""
_USE_PROGRAMS = change(tables.programs, _LEARNT)
_RECORDED = (
    "exit_code",
    "reason",
    "wall_s",
    "cpu_s",
    "system_s",
    "peak_memory_bytes",
    "stdout",
    "stderr",
    "outputs",
    "value",
    "metrics",
    "phases",
)


def changed(effects: Effects) -> list[tuple[Mapper[Any], list[Any]]]:
    """Return all entities that a step made or changed, by mapper, in an order that foreign keys allow."""
    changes: list[tuple[Mapper[Any], list[Any]]] = [
        (GRID, [effects.grid]),
        (JOBS, list(effects.jobs.values())),
        (SPECS, _new_jobs(effects)),
        (TASKS, list(effects.tasks.values())),
        (ATTEMPTS, list(effects.attempts.values())),
        (WORKERS, list(effects.workers.values())),
        (PLANS, list(effects.plans.values())),
        (PROGRAMS, list(effects.programs.values())),
        (GANGS, list(effects.gangs.values())),
        (CARRIERS, list(effects.carriers.values())),
        (USERS, list(effects.users.values())),
        (EXEMPTIONS, effects.exemptions),
    ]
    return [(mapper, entities) for mapper, entities in changes if entities]


def is_changed(effects: Effects) -> bool:
    """True if a step changed more than the time."""
    return bool(effects.disbanded or effects.gone or effects.forgotten_jobs) or any(
        mapper is not GRID for mapper, _ in changed(effects)
    )


class Written:
    """Memory of the rows written whole, so that later writes are shorter.

    An attempt is written several times, once whole; a worker with each of its Reports, and whole as it joins; a
    program whenever it is used, and whole if its window changed.
    """

    def __init__(self) -> None:
        self._attempts: set[AttemptId] = set()
        self._facts: dict[str, Facts] = {}
        self._windows: dict[ProgramKey, tuple[Observation, ...]] = {}

    def writes(self, effects: Effects) -> list[Write]:
        """Return the writes of a step, with the entities' present values."""
        written: list[Write] = []
        for key in effects.forgotten:
            self._windows.pop(key, None)
        for name in effects.gone:
            self._facts.pop(name, None)
        for mapper, entities in changed(effects):
            if mapper is ATTEMPTS:
                written += self._write_attempts(entities)
            elif mapper is WORKERS:
                written += self._write_workers(entities)
            elif mapper is PROGRAMS:
                written += self._write_programs(entities)
            else:
                written.append((upsert(mapper.table), mapper.encoded(entities)))
        return written

    def _write_attempts(self, attempts: list[Attempt]) -> Iterator[Write]:
        """Yield the writes of attempts: whole rows of new ones, only the columns that change of the others."""
        new = [attempt for attempt in attempts if attempt.id not in self._attempts]
        old = [attempt for attempt in attempts if attempt.id in self._attempts]
        if new:
            yield upsert(tables.attempts), ATTEMPTS.encoded(new)
        if old:
            yield _CHANGE_ATTEMPTS, _CHANGED_ATTEMPTS.encoded(old)
        self._attempts.update(attempt.id for attempt in new)
        self._attempts.difference_update(attempt.id for attempt in attempts if attempt.is_over)

    def _write_workers(self, workers: list[Worker]) -> Iterator[Write]:
        """Yield the writes of workers: what they say of themselves as they join is written only then."""
        joined = [worker for worker in workers if self._facts.get(worker.name) is not worker.facts]
        known = [worker for worker in workers if self._facts.get(worker.name) is worker.facts]
        if joined:
            yield upsert(tables.workers), WORKERS.encoded(joined)
        if known:
            yield _CHANGE_WORKERS, _CHANGED_WORKERS.encoded(known)
        self._facts.update((worker.name, worker.facts) for worker in joined)

    def _write_programs(self, programs: list[Program]) -> Iterator[Write]:
        """Yield the writes of programs: the long window is written only if it has changed."""
        learnt = [program for program in programs if self._windows.get(program.key) is not program.window]
        used = [program for program in programs if self._windows.get(program.key) is program.window]
        if learnt:
            yield upsert(tables.programs), PROGRAMS.encoded(learnt)
        if used:
            yield _USE_PROGRAMS, [(one.used_at, one.runs, one.recorded, *one.key) for one in used]
        self._windows.update((program.key, program.window) for program in learnt)


def _new_jobs(effects: Effects) -> list[Job]:
    submitted = (reply.job for reply in effects.replies if isinstance(reply, Submitted))
    return [effects.jobs[job] for job in submitted if job in effects.jobs]


def notification_rows(effects: Effects) -> list[Values]:
    """Return a row for each end of a job, and each broken promise, of which somebody is to be told.

    Delivery is not part of the step.
    """
    ends = [
        _notification(job.id, job.departure, job.state.value, job.finished_at)
        for job in effects.jobs.values()
        if job.departure is not None and job.spec.notify is not None and job.state in job.spec.notify.on
    ]
    broken = [_notification(one.job, one.number, BROKEN, one.at) for one in effects.broken if one.is_notified]
    return ends + broken


def _notification(job: int, number: int, state: str, at: float | None) -> Values:
    return {
        "job": job,
        "departure": number,
        "state": state,
        "at": at,
        "tries": 0,
        "next_at": at,
        "done_at": None,
        "error": "",
    }


def forgotten_rows(effects: Effects) -> list[Values]:
    """Return keys of programs whose rows are deleted. Delete first, then write: a program may have come anew."""
    return [{"of_owner": owner, "of_name": name, "of_folder": folder} for owner, name, folder in effects.forgotten]


def disbanded_rows(effects: Effects) -> list[Values]:
    """Return keys of gangs whose rows are deleted; as above, before others are written."""
    return [{"of_job": job, "of_task": task, "of_first": first} for job, task, first in effects.disbanded]


def late_rows(effects: Effects) -> list[Values]:
    """Return results of attempts that the scheduler has forgotten: their keys (``of_...``), and what to record."""
    return [
        {
            "of_job": result.attempt.job,
            "of_task": result.attempt.task,
            "of_number": result.attempt.number,
            "of_worker": worker,
            "state": END[result.outcome],
            "late": True,
            "ended_at": effects.grid.now,
            "slot": result.slot or None,
            **{name: getattr(result, name) for name in _RECORDED},
        }
        for worker, result in effects.late
    ]
