"""Entities to rows and back, by the names of their fields: the same code writes, restores and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Row, Select, Table, select

from loopline_master.core.effects import Effects, Submitted
from loopline_master.core.entities import Attempt, Exemption, Grid, Job, Program, Task, Worker
from loopline_master.core.runs import ProgramKey
from loopline_master.core.transitions import END
from loopline_master.store import tables
from loopline_master.store.statements import Statement, change, order_of_change, upsert
from loopline_master.store.tables import encoder
from loopline_shared.model import AttemptId, Observation

Entity = TypeVar("Entity")
Values = dict[str, Any]
"""A row: its values by column."""
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
                row[place] = encode(row[place])
        return rows

    def select(self) -> Select[Any]:
        return select(*(self.table.c[name] for name in self._paths))

    def entity(self, row: Row[Any]) -> Entity:
        return self._kind(**row._mapping)


class _JobMapper(Mapper[Job]):
    """Mapper of jobs. A job is read together with its spec, which is written once."""

    def select(self) -> Select[Any]:
        return super().select().add_columns(tables.specs.c.spec).join_from(tables.jobs, tables.specs)


class _GridMapper(Mapper[Grid]):
    """Mapper of the grid, the only row of its table."""

    def values(self, entities: Iterable[Grid]) -> list[Values]:
        return [{"id": 1, **row} for row in super().values(entities)]

    def encoded(self, entities: Iterable[Grid]) -> list[list[Any]]:
        return [[1, *row] for row in super().encoded(entities)]


GRID = _GridMapper(Grid, tables.grid)
JOBS = _JobMapper(Job, tables.jobs)
SPECS = Mapper(Job, tables.specs, {"job": "id", "name": "spec.name", "spec": "spec"})
TASKS = Mapper(Task, tables.tasks)
ATTEMPTS = Mapper(Attempt, tables.attempts)
WORKERS = Mapper(Worker, tables.workers)
PROGRAMS = Mapper(Program, tables.programs)
EXEMPTIONS = Mapper(Exemption, tables.exemptions)

_FIXED = ("worker", "slots", "replica", "dispatched_at", "expected_s")
"""Columns of an attempt that never change."""
_CHANGE_ATTEMPTS = change(tables.attempts, _FIXED)
_changing = itemgetter(*order_of_change(tables.attempts, _FIXED))

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
        (PROGRAMS, list(effects.programs.values())),
        (EXEMPTIONS, effects.exemptions),
    ]
    return [(mapper, entities) for mapper, entities in changes if entities]


def is_changed(effects: Effects) -> bool:
    """True if a step changed more than the time."""
    return any(mapper is not GRID for mapper, _ in changed(effects))


class Written:
    """Memory of the rows written whole, so that later writes are shorter.

    An attempt is written several times, once whole; a program whenever it is used, and whole if its window changed.
    """

    def __init__(self) -> None:
        self._attempts: set[AttemptId] = set()
        self._windows: dict[ProgramKey, tuple[Observation, ...]] = {}

    def writes(self, effects: Effects) -> list[Write]:
        """Return the writes of a step, with the entities' present values."""
        written: list[Write] = []
        for key in effects.forgotten:
            self._windows.pop(key, None)
        for mapper, entities in changed(effects):
            if mapper is ATTEMPTS:
                written += self._write_attempts(entities)
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
            yield _CHANGE_ATTEMPTS, [_changing(row) for row in ATTEMPTS.encoded(old)]
        self._attempts.update(attempt.id for attempt in new)
        self._attempts.difference_update(attempt.id for attempt in attempts if attempt.is_over)

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
    """Return a row for each end of a job that somebody is to be notified of. Delivery is not part of the step."""
    return [
        {
            "job": job.id,
            "departure": job.departure,
            "state": job.state.value,
            "at": job.finished_at,
            "tries": 0,
            "next_at": job.finished_at,
            "done_at": None,
            "error": "",
        }
        for job in effects.jobs.values()
        if job.departure is not None and job.spec.notify is not None and job.state in job.spec.notify.on
    ]


def forgotten_rows(effects: Effects) -> list[Values]:
    """Return keys of programs whose rows are deleted. Delete first, then write: a program may have come anew."""
    return [{"of_owner": owner, "of_name": name, "of_folder": folder} for owner, name, folder in effects.forgotten]


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
            **{name: getattr(result, name) for name in _RECORDED},
        }
        for worker, result in effects.late
    ]
