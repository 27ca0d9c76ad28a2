"""The tables: a column a field of the scheduler's entities, so that rows and entities cannot drift apart.

A job's spec is stored as submitted: it may have many megabytes, and never changes. It has a table of its own, so that
the job's row, written by every step that concerns the job, stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from enum import StrEnum
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.types import TypeEngine

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount, ResumedAttempt, SavedCheckpoint
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.core.wings.exemptions.exemption import Evidence, Exemption
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.transfers.carrier import Carrier
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.rest.access import Role
from loopline_shared.spec import JobSpec

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Value = TypeVar("Value")


class Json(TypeDecorator[Value]):
    """A value of one type as JSON text: written and validated by pydantic."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Value]) -> None:
        super().__init__()
        self.kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Value]:
        """Return the adapter, made on first use: making all of them takes long."""
        return TypeAdapter(self.kind)

    def encode(self, value: Value) -> str:
        return self._adapter.serializer.to_json(value).decode()

    def process_bind_param(self, value: Value | None, dialect: Dialect) -> str | None:
        return None if value is None else self.encode(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:
        return None if value is None else self._adapter.validate_json(value)


def encoder(column: Column[Any]) -> Callable[[Any], str] | None:
    """Return the function that encodes a column's values for the database; None if they are kept as they are."""
    return column.type.encode if isinstance(column.type, Json) else None


class Choice(TypeDecorator[Value]):
    """A member of an enum as its text. A StrEnum is text, and is written unchanged."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Value]) -> None:
        super().__init__()
        self.kind = kind

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:
        return None if value is None else self.kind(value)  # type: ignore[call-arg]


WHOLE: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")  # there, INTEGER keys are the row's own
_TYPES: dict[type, TypeEngine[Any]] = {int: WHOLE, float: Double(), str: Text(), bool: Boolean()}


def _columns(kind: type, key: Collection[str], without: Collection[str] = ()) -> Iterable[Any]:
    """Return the columns of an entity's fields, and the checks of its enums."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.init and field.name not in without:
            yield from _column(field.name, hints[field.name], field.name in key)


def _column(name: str, hint: Any, is_key: bool) -> Iterable[Any]:
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = next(member for member in members if member is not NoneType)
    is_enum = isinstance(plain, type) and issubclass(plain, StrEnum)
    column_type = _TYPES.get(plain) or (Choice(plain) if is_enum else Json(plain))
    nullable = NoneType in members
    yield Column(name, column_type, primary_key=is_key, nullable=nullable, autoincrement=False)
    if is_enum:
        yield _one_of(name, plain)


def _each(kind: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    """Return columns of one type that always have a value."""
    return [Column(name, kind, nullable=False) for name in names]


def _one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """Return the check as a chain of comparisons: for a list, SQLite would make a table with every row written."""
    return CheckConstraint(" OR ".join(f"\"{column}\" = '{value}'" for value in values), name=column)


grid = Table(
    "grid",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    *_columns(Grid, key=()),
    CheckConstraint("id = 1", name="one_row"),
)

jobs = Table(
    "jobs",
    metadata,
    *_columns(Job, key=["id"], without=["spec"]),
    UniqueConstraint("owner", "idempotency_key"),
)
Index(None, jobs.c.departure, jobs.c.arrival, jobs.c.size, jobs.c.order)  # live jobs (no departure), and the audit
Index(None, jobs.c.state, jobs.c.id)
Index(None, jobs.c.owner, jobs.c.id)
Index(None, jobs.c.held_at)

specs = Table(
    "specs",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("spec", Json(JobSpec), nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    *_columns(Task, key=["job", "number"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
    sqlite_with_rowid=False,  # rows are small, and found by their key
)
Index(None, tasks.c.job, tasks.c.state, tasks.c.number)
Index(None, tasks.c.job, tasks.c.finished_at, tasks.c.number)

attempts = Table(
    "attempts",
    metadata,
    *_columns(Attempt, key=["job", "task", "number"]),
    ForeignKeyConstraint(["job", "task"], ["tasks.job", "tasks.number"]),
)
Index(None, attempts.c.ended_at, attempts.c.dispatched_at)
Index(None, attempts.c.dispatched_at)
_of_few = {
    Index("ix_attempts_live", attempts.c.worker, sqlite_where=text("ended_at IS NULL")): "ended_at IS NULL",
    Index("ix_attempts_late", attempts.c.job, sqlite_where=text("late = 1")): "late",
}
"""Indexes of few attempts, and their conditions in PostgreSQL: each index of all costs every task 4 us of CPU."""


@event.listens_for(attempts, "before_create")
def _say_for_postgres(table: Table, connection: Connection, **_: object) -> None:
    """Set PostgreSQL's conditions late: given above, they load SQLAlchemy's PostgreSQL dialect at every start."""
    if connection.dialect.name == "postgresql":
        for index, condition in _of_few.items():
            index.dialect_kwargs["postgresql_where"] = text(condition)


plans = Table("plans", metadata, *_columns(Plan, key=["job", "task"]), ForeignKeyConstraint(["job"], ["jobs.id"]))

workers = Table("workers", metadata, *_columns(Worker, key=["name"]))

users = Table("users", metadata, *_columns(User, key=["name"]))  # users that have submitted jobs

limits = Table("limits", metadata, *_columns(Limit, key=["name", "user"]))

checkpoints = Table(
    "checkpoints",
    metadata,
    *_columns(SavedCheckpoint, key=["job", "task", "manifest"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
)

resumptions = Table(  # attempts that continued from a checkpoint
    "resumptions",
    metadata,
    *_columns(ResumedAttempt, key=["job", "task", "number"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
)

checkpoint_accounts = Table(  # of attempts that took checkpoints
    "checkpoint_accounts",
    metadata,
    *_columns(CheckpointAccount, key=["job", "task", "number"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
)

energies = Table(  # of attempts whose workers measure or declare it
    "energies",
    metadata,
    *_columns(AttemptEnergy, key=["job", "task", "number", "source"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
    sqlite_with_rowid=False,
)

carriers = Table("carriers", metadata, *_columns(Carrier, key=["name"]))  # workers, as far as they carry files

forecasts = Table(  # forecasts of a job at certain moments, to be compared with its end
    "forecasts",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("arrival", WHOLE, primary_key=True, autoincrement=False),  # a job retried is another one
    Column("moment", Integer, primary_key=True, autoincrement=False),  # per cent of its tasks were over; 0: the first
    *_each(Double(), "at", "p50_at", "p90_at"),
    *_each(Double(), "model_p50_s", "model_p90_s"),  # before the record of past forecasts had set it right
)
Index(None, forecasts.c.at)

removals = Table(  # jobs whose files are no longer kept, and why
    "removals",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
)

uploads = Table(  # files that users brought, each counted for the first who did
    "uploads",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("bytes", WHOLE, nullable=False),
)

samples = Table(  # samples reported by workers, once a minute
    "samples",
    metadata,
    Column("minute", WHOLE, primary_key=True, autoincrement=False),  # since 1970
    Column("worker", Text, primary_key=True),
    *_each(Double(), "spare_cpu"),
    *_each(WHOLE, "slots", "used", "in_use", "frozen"),
    sqlite_with_rowid=False,  # read by its key, forwards
)
Index(None, samples.c.worker, samples.c.minute)

_COUNTS = ("attempts", "tasks")
_USED = ("wall_s", "useful_cpu_s", "replicated_cpu_s", "wasted_cpu_s", "lost_cpu_s")

usage = Table(  # of forgotten jobs, by the day of their end
    "usage",
    metadata,
    Column("kind", Text, primary_key=True),  # user or worker
    Column("name", Text, primary_key=True),
    Column("day", WHOLE, primary_key=True, autoincrement=False),  # since 1970
    *_each(WHOLE, "jobs", *_COUNTS, "checkpoints", "checkpoint_bytes"),
    *_each(Double(), *_USED, "kept_cpu_s", "checkpoint_held_s"),
)

energy_usage = Table(  # of forgotten jobs, by the day of their end, where energy was measured or declared
    "energy_usage",
    metadata,
    Column("kind", Text, primary_key=True),  # user or worker
    Column("name", Text, primary_key=True),
    Column("day", WHOLE, primary_key=True, autoincrement=False),  # since 1970
    Column("source", Choice(EnergySource), primary_key=True),
    *_each(Double(), "useful_j", "wasted_j"),
)

job_sums = Table(  # of the attempts of large jobs, by pieces of tasks (history/job_sums.py)
    "job_sums",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("piece", WHOLE, primary_key=True, autoincrement=False),
    *_each(WHOLE, *_COUNTS),
    *_each(Double(), *_USED),
    *_each(WHOLE, "dispatched", "lost", "failed", "given_back", "replicas_won"),
    *_each(Double(), "fetch_s", "frozen_s", "deliver_s", "accepted_s", "slowest_s"),
    *(Column(f"{which}_{what}_at", Double) for which in ("first", "last") for what in ("dispatched", "ended")),
    sqlite_with_rowid=False,
)

worker_sums = Table(  # the same of each worker
    "worker_sums",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("piece", WHOLE, primary_key=True, autoincrement=False),
    Column("worker", Text, primary_key=True),
    *_each(WHOLE, *_COUNTS),
    *_each(Double(), *_USED),
    sqlite_with_rowid=False,
)

programs = Table("programs", metadata, *_columns(Program, key=["owner", "name", "folder"]))
Index(None, programs.c.used_at)

gangs = Table(
    "gangs", metadata, *_columns(Gang, key=["job", "task", "first"]), ForeignKeyConstraint(["job"], ["jobs.id"])
)

exemptions = Table(
    "exemptions",
    metadata,
    *_columns(Exemption, key=["job", "since", "reason"]),
    ForeignKeyConstraint(["job"], ["jobs.id"]),
)


def _of_exemption() -> ForeignKeyConstraint:
    """Return a reference that is checked at the commit: the clock is corrected in one table after the other."""
    key = ("job", "since", "reason")
    return ForeignKeyConstraint(key, [f"exemptions.{name}" for name in key], deferrable=True, initially="DEFERRED")


evidence = Table(  # for them, as they began
    "evidence",
    metadata,
    *_columns(Evidence, key=["job", "since", "reason"]),
    _of_exemption(),
)

flaws = Table(  # exemptions that their evidence does not found: violations
    "flaws",
    metadata,
    *_each(WHOLE, "job"),
    *_each(Double(), "since"),
    *_each(Text(), "reason", "flaw"),
    PrimaryKeyConstraint("job", "since", "reason"),
    _of_exemption(),
)

audits = Table(  # completions that were checked for passings; a job retried may complete again, hence arrival
    "audits",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True),
    Column("arrival", WHOLE, primary_key=True),
    Column("departure", WHOLE, nullable=False),
    Column("at", Double, nullable=False),
)

passings = Table(  # results of those checks
    "passings",
    metadata,
    Column("job", WHOLE, primary_key=True),
    Column("arrival", WHOLE, primary_key=True),
    Column("passed", WHOLE, ForeignKey("jobs.id"), primary_key=True),
    Column("reason", Text),  # why it was allowed; NULL: it was not
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job", "arrival"], ["audits.job", "audits.arrival"]),
)
Index(None, passings.c.at)

notifications = Table(  # one for each end of a job with a notification
    "notifications",
    metadata,
    Column("job", WHOLE, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("departure", WHOLE, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("tries", WHOLE, nullable=False),
    Column("next_at", Double),  # NULL: sent, or given up
    Column("done_at", Double),
    Column("error", Text, nullable=False),
)
Index(None, notifications.c.next_at)

event_log = Table(
    "event_log",
    metadata,
    Column("seq", WHOLE, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("batch", Text, nullable=False),
)

log_snapshots = Table(  # where a replay of the log can start
    "log_snapshots",
    metadata,
    Column("after", WHOLE, primary_key=True, autoincrement=False),  # the last event_log.seq before
    Column("at", Double, nullable=False),
    Column("snapshot", Text, nullable=False),  # JSON of the scheduler's rows
)

join_tokens = Table(  # each admits ``uses`` computers until it expires
    "join_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256 of the secret, in hex
    *_each(WHOLE, "uses", "used"),
    *_each(Double(), "created_at", "expires_at"),
    Column("revoked_at", Double),
    Column("offers", Json(dict[str, int])),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    *_each(Text(), "name", "role"),
    Column("worker", Text),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256 of the secret, in hex
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("expires_at", Double),
    Column("used_at", Double),
    Column("used_from", Text, nullable=False),
    Column("offers", Json(dict[str, int])),
    _one_of("role", get_args(Role)),
)

audit_log = Table(  # requests that changed something
    "audit_log",
    metadata,
    Column("id", WHOLE, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    *_each(Text(), "who", "role", "token", "address", "did", "on"),
)
Index(None, audit_log.c.at)

lives = Table(  # of this database: each restore begins another
    "lives",
    metadata,
    Column("number", WHOLE, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("begun_at", Double, nullable=False),
)

mastership = Table(
    "mastership",
    metadata,
    Column("id", WHOLE, primary_key=True, autoincrement=False),  # 1
    Column("epoch", WHOLE, nullable=False),  # of the master that writes; each has one of its own
    Column("beat_at", Double, nullable=False),  # by the database's own clock
    Column("commits", WHOLE, nullable=False, server_default="0"),  # count over all epochs
    Column("server", Text),  # which server, and how often it has followed another one; empty: it does not say
)
