"""Entities to rows and back, by the names of their fields: the same code writes, restores and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Row, Select, Table, select

from master.scheduling.effects import Effects, Submitted
from master.scheduling.model import Attempt, Exemption, Grid, Job, Program, Task, Worker
from master.scheduling.states import END
from master.store import tables

Entity = TypeVar("Entity")
Values = dict[str, Any]
"""A row to be written: its values by column."""


class Mapper(Generic[Entity]):
    """One kind of entity and the table of its rows."""

    def __init__(self, kind: type[Entity], table: Table, without: Iterable[str] = ()) -> None:
        self._kind = kind
        self._names = [field.name for field in fields(kind) if field.init and field.name not in without]  # type: ignore[arg-type]
        self._values: Callable[[Entity], tuple[Any, ...]] = attrgetter(*self._names)
        self.table = table

    def values(self, entities: Iterable[Entity]) -> list[Values]:
        """Rows to be written. They hold the entities' values as they are now."""
        names, values = self._names, self._values
        return [dict(zip(names, values(entity), strict=True)) for entity in entities]

    def select(self) -> Select[Any]:
        return select(*(self.table.c[name] for name in self._names))

    def entity(self, row: Row[Any]) -> Entity:
        return self._kind(**row._mapping)


class _JobMapper(Mapper[Job]):
    """A job is read together with its spec, which is written once."""

    def __init__(self) -> None:
        super().__init__(Job, tables.jobs, without=["spec"])

    def select(self) -> Select[Any]:
        return super().select().add_columns(tables.specs.c.spec).join_from(tables.jobs, tables.specs)


GRID = Mapper(Grid, tables.grid)
JOBS = _JobMapper()
TASKS = Mapper(Task, tables.tasks)
ATTEMPTS = Mapper(Attempt, tables.attempts)
WORKERS = Mapper(Worker, tables.workers)
PROGRAMS = Mapper(Program, tables.programs)
EXEMPTIONS = Mapper(Exemption, tables.exemptions)

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


def changed_rows(effects: Effects) -> list[tuple[Table, list[Values]]]:
    """All rows that a step made or changed, whole, in an order that foreign keys allow."""
    changes = [
        (tables.grid, [{"id": 1, **row} for row in GRID.values([effects.grid])]),
        (tables.jobs, JOBS.values(effects.jobs.values())),
        (tables.specs, _specs(effects)),
        (tables.tasks, TASKS.values(effects.tasks.values())),
        (tables.attempts, ATTEMPTS.values(effects.attempts.values())),
        (tables.workers, WORKERS.values(effects.workers.values())),
        (tables.programs, PROGRAMS.values(effects.programs.values())),
        (tables.exemptions, EXEMPTIONS.values(effects.exemptions)),
    ]
    return [(table, rows) for table, rows in changes if rows]


def _specs(effects: Effects) -> list[Values]:
    submitted = (reply.job for reply in effects.replies if isinstance(reply, Submitted))
    new = (effects.jobs[job] for job in submitted if job in effects.jobs)
    return [{"job": job.id, "name": job.spec.name, "spec": job.spec} for job in new]


def notification_rows(effects: Effects) -> list[Values]:
    """A row for each end of a job that somebody wants to hear of. (What becomes of it is no step's doing.)"""
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
    """Keys of programs whose rows go (before changed ones are written: one may have been learnt of anew)."""
    return [{"of_owner": owner, "of_name": name, "of_folder": folder} for owner, name, folder in effects.forgotten]


def late_rows(effects: Effects) -> list[Values]:
    """Results of attempts that the scheduler has forgotten: whose they are (``of_...``), and what to record."""
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
