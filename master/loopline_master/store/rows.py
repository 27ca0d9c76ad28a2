"""Entities to rows and back, by the names of their fields: the same code writes, restores and replays.

The SQL for the rows of every task is made once, and values go to the driver directly (Statement).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, cached_property, lru_cache
from itertools import chain, compress
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Connection, Dialect, Row, Select, Table, bindparam, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable

from loopline_master.core.kernel.effects import Effects, Submitted
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.runs import key_of
from loopline_master.core.kernel.transitions import END
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount, ResumedAttempt, SavedCheckpoint
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.core.wings.exemptions.exemption import Evidence, Exemption
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import BROKEN, BrokenPromise, Plan
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.transfers.carrier import Carrier
from loopline_master.store import tables
from loopline_master.store.tables import encoder

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

Entity = TypeVar("Entity")
Values = dict[str, Any]
"""A row: its values by column."""
_NOTHING: tuple[()] = ()
_TEXTS = 256  # steps of one row each write few combinations of tables
_PLACE = re.compile(r"\$(\d+)")


class Statement:
    """A statement whose text ``make`` builds for a dialect's name, once; every value of a row has a place in it."""

    def __init__(self, make: Callable[[str], Executable]) -> None:
        self._make = make
        self._texts: dict[str, str] = {}

    @cached_property
    def of_sqlite(self) -> str:
        """Text for SQLite."""
        return self.of(sqlite.dialect())

    def of(self, dialect: Dialect) -> str:
        """Return its text for a dialect."""
        if dialect.name not in self._texts:
            compiled = self._make(dialect.name).compile(dialect=dialect)  # type: ignore[attr-defined]
            self._texts[dialect.name] = compiled.string
        return self._texts[dialect.name]


Write = tuple[Statement, Collection[Iterable[Any]]]
"""A statement, and its rows: values in the order of its places, encoded for the database."""


Marks = dict[object, object]


def run(connection: Connection, writes: Iterable[Write]) -> None:
    """Run statements, each for its rows. SQLite's own errors are raised unchanged."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        run_all = driver.executemany
        for statement, rows in writes:
            run_all(statement.of_sqlite, rows)
    else:
        for statement, rows in writes:
            connection.exec_driver_sql(statement.of(connection.dialect), [tuple(row) for row in rows])


class Writes:
    """Work that only writes rows (a Transact's ``work``), in groups: each sees the rows of those before it."""

    def __init__(self, *groups: Sequence[Write]) -> None:
        self._groups = [group for group in groups if group]

    def __call__(self, connection: Connection) -> None:
        for group in self._groups:
            run(connection, group)

    def joined(self, dialect: Dialect, end: str) -> list[tuple[str, list[Any]]]:
        """Return each group as one statement of PostgreSQL, with its values; ``end`` is the end of the last one.

        Return nothing if a statement has several rows.
        """
        if any(len(rows) != 1 for group in self._groups for _, rows in group):
            return []
        ends = [*[" SELECT 1"] * (len(self._groups) - 1), end]
        return [
            (_joined(tuple(one.of(dialect) for one, _ in group), end), [*chain(*chain(*(rows for _, rows in group)))])
            for group, end in zip(self._groups, ends, strict=True)
        ]


@lru_cache(maxsize=_TEXTS)
def _joined(texts: tuple[str, ...], end: str) -> str:
    """Return statements as one: their values are counted from the first to the last."""
    parts, before = list[str](), 0
    for number, text in enumerate(texts):
        places = max(map(int, _PLACE.findall(text)))
        parts.append(f"w{number} AS ({_PLACE.sub(lambda place: f'${int(place[1]) + before}', text)})")  # noqa: B023
        before += places
    return f"WITH {', '.join(parts)}{end}"


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
    """Return a statement that changes existing rows: values of columns not ``fixed``, then the key.

    A fixed key is that of the only row of its table.
    """
    here = [column == bindparam(f"of_{column.name}") for column in table.primary_key if column.name not in fixed]
    names = order_of_change(table, fixed)
    names = names[: len(names) - len(here)]
    statement = update(table).where(*here).values({name: bindparam(f"new_{name}") for name in names})
    return Statement(lambda _: statement)


def order_of_change(table: Table, fixed: Collection[str]) -> list[str]:
    """Return the columns whose values ``change`` takes, in its order."""
    rest = [column for column in table.columns if not column.primary_key]
    return [column.name for column in (*rest, *table.primary_key) if column.name not in fixed]


class Mapper(Generic[Entity]):
    """Mapper between one kind of entity and the rows of its table."""

    def __init__(self, kind: type[Entity], table: Table, columns: Mapping[str, str] | None = None) -> None:
        """``columns``: the path of each value in an entity; needed if columns are not named as fields are."""
        defaults = {field.name: field.default for field in fields(kind) if field.init}  # type: ignore[arg-type]
        self.kind, self.table, self._upsert = kind, table, upsert(table)
        self._paths = columns or {name: name for name in defaults if name in table.c}
        self._values: Callable[[Entity], tuple[Any, ...]] = attrgetter(*self._paths.values())
        told = {name: encode for name in self._paths if (encode := encoder(table.c[name]))}
        plain = [name for name in self._paths if name not in told]
        self._encoders = tuple(told.values())
        self._plain, self._told = (_tuple_of([self._paths[name] for name in names]) for names in (plain, [*told]))
        self._arranged: Callable[[Any], tuple[Any, ...]] = itemgetter(*map([*plain, *told].index, self._paths))
        self._unset = tuple(defaults.get(name, MISSING) for name in told)
        self._unset_row = [] if MISSING in self._unset else _encoded(self._unset, self._encoders)

    def values(self, entities: Iterable[Entity]) -> list[Values]:
        """Return the entities' present values as rows, by column."""
        return [dict(zip(self._paths, self._values(entity), strict=True)) for entity in entities]

    def encoded(self, entities: Iterable[Entity]) -> list[tuple[Any, ...]]:
        """Return rows as the database keeps them, in the order of the columns."""
        return list(map(self._row if self._encoders else self._values, entities))

    def _row(self, entity: Entity) -> tuple[Any, ...]:
        told = self._told(entity)
        row = self._unset_row if told == self._unset else _encoded(told, self._encoders)
        return self._arranged((*self._plain(entity), *row))

    def writes(self, entities: Iterable[Entity], marks: Marks) -> Iterable[Write]:
        """Return the writes of entities, made or changed. ``marks``: of rows that are there, by key (_Rewritten)."""
        return ((self._upsert, self.encoded(entities)),)

    def select(self) -> Select[Any]:
        return select(*(self.table.c[name] for name in self._paths))

    def entity(self, row: Row[Any]) -> Entity:
        return self.kind(**row._mapping)


def _tuple_of(paths: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets the values at these paths of an entity as a tuple, even if there is only one."""
    if len(paths) == 1:
        get = attrgetter(*paths)
        return lambda entity: (get(entity),)
    return attrgetter(*paths) if paths else lambda _: ()


def _encoded(values: Iterable[Any], encoders: Iterable[Callable[[Any], str]]) -> list[str | None]:
    return [
        None if value is None else "[]" if value is _NOTHING else encode(value)
        for value, encode in zip(values, encoders, strict=True)
    ]


class _Rewritten(Mapper[Entity]):
    """Mapper of entities whose rows are written again and again: without the columns that are ``fixed``.

    Those are as they were if an entity's ``mark`` is still the same object.
    """

    def __init__(
        self, kind: type[Entity], table: Table, by: tuple[str, str], end: str = "", fixed: Collection[str] = ()
    ) -> None:
        """``by``: the fields with key and mark. ``end``: a column that is set once the entity is over."""
        super().__init__(kind, table)
        self._part = Mapper(kind, table, {name: name for name in order_of_change(table, fixed)})
        self._change = change(table, fixed)
        self._known_by, self._end = attrgetter(*by), attrgetter(end) if end else None

    def writes(self, entities: Iterable[Entity], marks: Marks) -> Iterable[Write]:
        new, known = [], []
        for entity in entities:
            key, mark = self._known_by(entity)
            if marks.get(key) is mark:
                known.append(entity)
            else:
                new.append(entity)
                marks[key] = mark
            if self._end and self._end(entity) is not None:
                del marks[key]
        if new:
            yield self._upsert, self.encoded(new)
        if known:
            yield self._change, self._part.encoded(known)


class _JobMapper(_Rewritten[Job]):
    """Mapper of jobs. A job is read together with its spec, which is written once."""

    def select(self) -> Select[Any]:
        return super().select().add_columns(tables.specs.c.spec).join_from(tables.jobs, tables.specs)


class _SpecMapper(Mapper[Job]):
    """Mapper of specs, which are listed under the name that their user gave, else under their program's."""

    def __init__(self) -> None:
        super().__init__(Job, tables.specs, {"job": "id", "name": "spec.name", "spec": "spec"})
        self._values = lambda job: (job.id, job.spec.name or key_of(job.owner, job.spec)[1], job.spec)

    def encoded(self, entities: Iterable[Job]) -> list[tuple[Any, ...]]:
        (encode,) = self._encoders
        return [(job, name, encode(spec)) for job, name, spec in map(self._values, entities)]


class _GridMapper(Mapper[Grid]):
    """Mapper of the grid, the only row of its table."""

    def __init__(self) -> None:
        super().__init__(Grid, tables.grid)
        self._change = change(tables.grid, ("id",))

    def values(self, entities: Iterable[Grid]) -> list[Values]:
        return [{"id": 1, **row} for row in super().values(entities)]

    def writes(self, entities: Iterable[Grid], marks: Marks) -> Iterable[Write]:
        if marks:
            return ((self._change, self.encoded(entities)),)
        marks["is there"] = True
        return ((self._upsert, [(1, *row) for row in self.encoded(entities)]),)


SUBMITTED = (
    *("owner", "task_count", "order", "max_attempts", "max_replicas", "submitted_at", "idempotency_key"),
    *("inputs", "within", "nodes", "spec_bytes"),
)
"""Columns of a job that never change."""
DISPATCHED = ("worker", "slots", "replica", "dispatched_at", "expected_s")
"""Columns of an attempt that never change."""
_SAID = ("facts", "joined_at")
"""Columns of a worker that change only as it joins."""
_LEARNT = ("first_run_at", "window", "strange", "changed_at")
"""Columns of a program that change only with its window, which is long."""
GRID = _GridMapper()
JOBS = _JobMapper(Job, tables.jobs, ("id", "spec"), "departure", SUBMITTED)
SPECS = _SpecMapper()
TASKS = _Rewritten(Task, tables.tasks, ("id", "id"), "finished_at")
ATTEMPTS = _Rewritten(Attempt, tables.attempts, ("id", "id"), "ended_at", DISPATCHED)
WORKERS = _Rewritten(Worker, tables.workers, ("name", "facts"), fixed=_SAID)
PROGRAMS = _Rewritten(Program, tables.programs, ("key", "window"), fixed=_LEARNT)
GANGS = Mapper(Gang, tables.gangs)
PLANS = Mapper(Plan, tables.plans)
CARRIERS = Mapper(Carrier, tables.carriers)
USERS = _Rewritten(User, tables.users, ("name", "__class__"))
LIMITS = Mapper(Limit, tables.limits)
CHECKPOINTS = Mapper(SavedCheckpoint, tables.checkpoints)
RESUMPTIONS = Mapper(ResumedAttempt, tables.resumptions)
CHECKPOINT_ACCOUNTS = Mapper(CheckpointAccount, tables.checkpoint_accounts)
ENERGIES = Mapper(AttemptEnergy, tables.energies)
EXEMPTIONS = Mapper(Exemption, tables.exemptions)
EVIDENCE = Mapper(Evidence, tables.evidence)
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


_KINDS: dict[str, Mapper[Any]] = {
    "jobs": JOBS,
    "tasks": TASKS,
    "attempts": ATTEMPTS,
    "workers": WORKERS,
    "programs": PROGRAMS,
}
"""By the names of effects, in an order that foreign keys allow."""
_OF_WINGS: dict[type, Mapper[Any]] = {
    Plan: PLANS, Gang: GANGS, Carrier: CARRIERS, User: USERS, Limit: LIMITS,
    SavedCheckpoint: CHECKPOINTS, ResumedAttempt: RESUMPTIONS, CheckpointAccount: CHECKPOINT_ACCOUNTS,
    AttemptEnergy: ENERGIES,
}  # fmt: skip
"""The same, of wings: after those of the kernel."""
_of_kinds = attrgetter(*_KINDS)
Changes = list[tuple[Mapper[Any], Collection[Any]]]


def changed(effects: Effects) -> Changes:
    """Return the grid and all entities changed by a step, by mapper, in an order that satisfies foreign keys."""
    of_kinds = _of_kinds(effects)
    there = compress(_KINDS.values(), of_kinds)
    changes: Changes = [(GRID, (effects.grid,)), *zip(there, map(dict.values, filter(None, of_kinds)), strict=True)]
    if effects.of_wings:
        of_wings = effects.of_wings
        changes += [(mapper, of_wings[kind].values()) for kind, mapper in _OF_WINGS.items() if of_wings.get(kind)]
    if effects.jobs and (new := _new_jobs(effects)):
        changes.insert(2, (SPECS, new))
    if exemptions := effects.told(Exemption):
        changes.append((EXEMPTIONS, exemptions))
        if evidence := effects.told(Evidence):
            changes.append((EVIDENCE, evidence))
    return changes


class Written:
    """Memory of the rows that were written whole, so that later writes are shorter (_Rewritten)."""

    def __init__(self) -> None:
        self._marks: dict[Mapper[Any], Marks] = defaultdict(dict)

    def writes(self, effects: Effects, changes: Changes) -> list[Write]:
        """Return the writes of a step, with the entities' present values."""
        for key in effects.forgotten:
            self._marks[PROGRAMS].pop(key, None)
        for name in effects.gone:
            self._marks[WORKERS].pop(name, None)
        written: list[Write] = []
        for mapper, entities in changes:
            written += mapper.writes(entities, self._marks[mapper])
        return written


def _new_jobs(effects: Effects) -> list[Job]:
    jobs, submitted = effects.jobs, [reply.job for reply in effects.replies if isinstance(reply, Submitted)]
    return [jobs[job] for job in submitted if job in jobs]


def notification_rows(effects: Effects) -> list[Values]:
    """Return a row for each end of a job and each broken promise that must be notified.

    Delivery is not part of the step.
    """
    ends = [
        _notification(job.id, job.departure, job.state.value, job.finished_at)
        for job in effects.jobs.values()
        if job.departure is not None and job.spec.notify is not None and job.state in job.spec.notify.on
    ]
    broken = (one for one in effects.told(BrokenPromise) if one.is_notified)
    ends += [_notification(one.job, one.number, BROKEN, one.at) for one in broken]
    return ends


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


def late_rows(effects: Effects) -> list[Values]:
    """Return results of attempts that the scheduler has forgotten: their keys (``of_...``), and the values."""
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
            "fetch_s": result.phases.inputs_s if result.phases else 0.0,
            "frozen_s": result.phases.frozen_s if result.phases else 0.0,
            "deliver_s": result.phases.deliver_s if result.phases else 0.0,
        }
        for worker, result in effects.late
    ]
