"""The store: the database with its queries by subject, and the only writer: one transaction for each step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from loopline_master.core.events import Batch, JobRetried, SchedulerSettings, SnapshotWritten, as_logged
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_master.core.wings.exemptions.exemption import Evidence
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.resources.limit import Limit
from loopline_master.store import audit, log_snapshots, restart
from loopline_master.store.database import (
    Database,
    Result,
    StoreBroken,
    Transact,
    is_sqlite,
    open_database,
    parse_url,
    shrink,
)
from loopline_master.store.history import forgotten_jobs
from loopline_master.store.history.job_sums import JobSums, Summed, forget_sums, known_pieces
from loopline_master.store.history.past_queries import PastQueries
from loopline_master.store.lock import SILENT_FOR_S, Epoch
from loopline_master.store.log_snapshots import DatabaseSize
from loopline_master.store.migrate import prepare
from loopline_master.store.past.clock import set_clock_right
from loopline_master.store.past.lives import JOB_GAP, begin_again, current_life
from loopline_master.store.queries.attempt_queries import AttemptQueries
from loopline_master.store.queries.audit_log import AuditedAction, AuditLog, noted
from loopline_master.store.queries.failure_queries import FailureQueries
from loopline_master.store.queries.file_references import FileReferences
from loopline_master.store.queries.job_history import JobHistories
from loopline_master.store.queries.job_queries import JobQueries
from loopline_master.store.queries.program_queries import ProgramQueries
from loopline_master.store.queries.result_queries import ResultQueries
from loopline_master.store.queries.task_queries import TaskQueries
from loopline_master.store.queries.timeline_queries import TimelineQueries
from loopline_master.store.queries.uploads import Uploads
from loopline_master.store.queries.usage_queries import UsageQueries
from loopline_master.store.queries.worker_queries import WorkerQueries
from loopline_master.store.records import EtaRecords, Notifications, SampleQueries, Sampler
from loopline_master.store.rows import (
    Statement,
    Values,
    Write,
    Writes,
    Written,
    changed,
    insert_into,
    late_rows,
    notification_rows,
    run,
)
from loopline_master.store.tables import (
    attempts,
    carriers,
    checkpoints,
    event_log,
    gangs,
    limits,
    notifications,
    programs,
    sleepers,
    tokens,
    workers,
)
from loopline_master.store.token_store import TokenStore
from loopline_shared.model import AttemptState, Load
from loopline_shared.rest.bodies import PassingReport

log = logging.getLogger(__name__)
_SHORT_ROWS = 100
_FORGOTTEN_AT_ONCE = 5_000
_WATCH_EVERY_S = 2.0
_Work = Callable[[Connection], Any]


@asynccontextmanager
async def open_store(
    url: str,
    *,
    keep_samples_s: float = 14 * 86400.0,
    standby: bool = False,
    is_new: bool = True,
    epoch: Epoch | None = None,
) -> AsyncIterator[Store]:
    """Open the store at a database URL: migrate its tables to this release, and lock out other masters.

    ``standby``: the lock of a silent master is taken. ``is_new``: an empty database is begun.
    ``epoch``: the one before of this master.
    """
    parsed = parse_url(url)
    async with open_database(parsed, standby=standby, epoch=epoch) as database:
        await prepare(database, parsed, is_new=is_new)
        if not is_sqlite(parsed):
            await database.write(partial(_begin_epoch, database.epoch))
        life = await database.read(current_life)
        summed = Summed(await database.read(known_pieces))
        yield Store(database, keep_samples_s, is_remote=not is_sqlite(parsed), life=life, summed=summed)


def _begin_epoch(epoch: Epoch, connection: Connection) -> None:
    """Begin an epoch, and another life if the database went back to an earlier state."""
    if epoch.begin(connection):
        begin_again(connection)
        log.warning(
            "the database may be back in an earlier state, as after a fail-over to a server that was behind: it "
            "begins another life, in which workers do again what they hold; the next job's number is %s higher",
            f"{JOB_GAP:,}",
        )


class Store:
    """The database, with its queries by subject."""

    def __init__(
        self, database: Database, keep_samples_s: float, *, is_remote: bool = False, life: str = "", summed: Summed
    ) -> None:
        """``life``: the current one of the database (lives.py). ``summed``: its pieces of large jobs with sums.

        ``is_remote``: another master may take it over.
        """
        self.life = life
        self._database, self._read, self.is_remote = database, database.read, is_remote
        self._summed = summed
        self._writer = Writer(database.write, Sampler(keep_samples_s), summed)
        self.jobs = JobQueries(self._read, database.look)
        self.tasks = TaskQueries(self._read)
        self.attempts = AttemptQueries(self._read)
        self.usage = UsageQueries(self._read)
        self.past = PastQueries(self._read)
        self.files = FileReferences(self._read, self._writer.write)
        self.uploads = Uploads(self._read, self._writer.write)
        self.timelines = TimelineQueries(self._read)
        self.samples = SampleQueries(self._read)
        self.results = ResultQueries(self._read)
        self.failures = FailureQueries(self._read)
        self.job_histories = JobHistories(self._read)
        self.job_sums = JobSums(self._read, self._writer.write, summed)
        self.workers = WorkerQueries(self._read)
        self.eta_records = EtaRecords(self._read, self._writer.write)
        self.notifications = Notifications(self._read, self._writer.write)
        self.programs = ProgramQueries(self._read)
        self.tokens = TokenStore(self._read, self._writer.write)
        self.audit_log = AuditLog(self._read, self._writer.write)

    async def commit(self, batch: Batch, effects: Effects, actions: Sequence[AuditedAction] = ()) -> None:
        """Store one step completely or not at all, with the audit entries of its requests.

        Raises StoreBroken if that fails: the master must then stop.
        """
        if await self._writer.commit(batch, effects, actions):
            self.notifications.came.set()

    async def sample(self, loads: Iterable[tuple[Worker, Load]], now: float) -> None:
        """Sample workers that have said this of their loads just now, in no commit. Raises StoreBroken."""
        await self._writer.sample(loads, now)

    async def check(self) -> None:
        """Raises StoreBroken if the database cannot be written."""
        await self._writer.write(lambda connection: connection.execute(select(1)).scalar())

    @property
    def is_sure(self) -> bool:
        """True if the database answered this master so recently that no other one can have taken over."""
        return not self.is_remote or self._database.epoch.is_sure

    async def confirm(self) -> None:
        """Raises StoreBroken if another master has taken over, or may have: this one says nothing then."""
        await self._database.confirm()

    async def watch(self, on_doubt: Callable[[], None]) -> None:
        """Return at once for a file. Raises StoreBroken soon after a server is gone, even without writes.

        ``on_doubt``: another master may have taken over, while the database does not say.
        """
        while self.is_remote:
            await asyncio.sleep(_WATCH_EVERY_S)
            checking = asyncio.create_task(self.check())
            try:
                while not (await asyncio.wait([checking], timeout=SILENT_FOR_S))[0]:
                    try:
                        await self.confirm()
                    except StoreBroken:
                        on_doubt()
                await checking
            finally:
                checking.cancel()

    async def set_clock_right(self, now: float) -> float:
        """Move times that are ahead of ``now``, before the scheduler starts; return by how much, 0 as a rule."""
        return await self._writer.write(lambda connection: set_clock_right(connection, now))

    async def size(self) -> DatabaseSize:
        """Return the size of the database and of its event log."""
        return await self._read(log_snapshots.size_of)

    @property
    def log_bytes(self) -> int:
        """Characters of the event log that were written since the start: those of its JSON."""
        return self._writer.log_bytes

    async def begin_log(self, keep_s: float, now: float) -> None:
        """Write a snapshot of the log if one is due, before the scheduler starts from the rows."""

        def work(connection: Connection) -> None:
            if log_snapshots.is_due(connection, keep_s, now):
                log_snapshots.write(connection, now)

        await self._writer.write(work)

    async def is_snapshot_due(self, keep_s: float, now: float) -> bool:
        """True if another snapshot of the log is due."""
        return await self._read(lambda connection: log_snapshots.is_due(connection, keep_s, now))

    async def forget_log(self, keep_s: float, now: float, most: int = _FORGOTTEN_AT_ONCE) -> int:
        """Forget entries of the log of before ``keep_s``, at most ``most``; return their number.

        The file of a database that was made by this release or a later one shrinks.
        """

        def work(connection: Connection) -> int:
            gone = log_snapshots.forget(connection, keep_s, now, most)
            if gone:
                shrink(connection)
            return gone

        return await self._writer.write(work)

    async def snapshot(self) -> Snapshot:
        """Return the entities that the scheduler continues with after a restart."""
        return await self._read(restart.snapshot)

    async def retry_material(self, job: int, only: Collection[int] = ()) -> JobRetried | None:
        """Return the event that retries a job, or ``only`` these of its tasks; None if there is no such job.

        It may be posted for an ended job only.
        """
        return await self._read(lambda connection: restart.retry_material(connection, job, only))

    async def kept_checkpoints(self, job: int, only: Collection[int] = ()) -> list[SavedCheckpoint]:
        """Return the checkpoints of an ended job's tasks, or ``only`` of these."""
        return await self._read(lambda connection: restart.kept_checkpoints(connection, job, only))

    async def expired_jobs(self, before: float, after: int, limit: int) -> list[tuple[int, int]]:
        """Return the next jobs after ``after`` that ended before this time, each with its number of tasks."""
        return await self._read(lambda connection: forgotten_jobs.expired(connection, before, after, limit))

    async def first_tasks(self, job: int) -> dict[str, int]:
        """Return the first task of a job that each worker has tried: what ``shorten`` needs."""
        return await self._read(lambda connection: forgotten_jobs.first_tasks(connection, job))

    async def shorten(self, job: int, most: int, now: float, first: Mapping[str, int]) -> bool:
        """Forget the last ``most`` tasks of an ended job, with their attempts; False if it has fewer."""
        self._summed.shortened(job)
        return await self._writer.write(lambda connection: forgotten_jobs.shorten(connection, job, most, now, first))

    async def passings(self, settings: SchedulerSettings, limit: int = 100) -> PassingReport:
        """Return the audit of the order guarantee. ``settings``: those now in force."""
        return await self._read(lambda connection: audit.report(connection, settings, limit))


class Writer:
    """Writes steps. After its first failure it refuses to go on: memory may then be ahead of the disk."""

    def __init__(self, write: Transact, sampler: Sampler | None = None, summed: Summed | None = None) -> None:
        self._write = write
        self._summed = summed or Summed()
        self._sampler = sampler
        self._written = Written()
        self._broken: StoreBroken | None = None
        self.log_bytes = 0

    async def commit(self, batch: Batch, effects: Effects, actions: Sequence[AuditedAction] = ()) -> bool:
        """Store a step's events, effects and audit entries: all of them, or none and raise StoreBroken.

        Return True if a notification is due. The effects are read before the first await. A step without
        events and effects leaves no trace.
        """
        changes, late = changed(effects), late_rows(effects) if effects.late else []
        goes = effects.dropped_by_wings or effects.gone or effects.forgotten_jobs
        if not (batch.events or late or goes or len(changes) > 1):  # time has passed in the grid, and that is all
            return False
        text = as_logged(batch)
        writes = [
            *_deletes(effects),
            *self._written.writes(effects, changes),
            (_LOG, [(batch.now, text)]),
            *noted(actions),
        ]
        audited, begun = audit.writes(effects.completed, batch.now), effects.told(Evidence)
        sampled = self._sampler.samples_of(effects) if self._sampler else []
        ended, before, after = notification_rows(effects), _before(batch, effects), list[_Work]()
        if late:
            after.append(lambda connection: connection.execute(_ENDED_LATE, late))
        if wrong := self._summed.changed(effects):
            after.append(partial(forget_sums, keys=wrong))
        if self._sampler and sampled:
            after.append(partial(self._sampler.write, rows=sampled))
        if ended:
            after.append(partial(_note_ends, ends=ended))

        def work(connection: Connection) -> None:
            for do in before:
                do(connection)
            run(connection, writes)
            if begun:
                audit.check_evidence(connection, begun)
            run(connection, audited)
            for do in after:
                do(connection)

        has_only_rows = not (before or begun or after)
        count = sum(map(len, map(_rows_of, (*writes, *audited)))) + len(late) + len(sampled)
        await self.write(Writes(writes, audited) if has_only_rows else work, is_short=count <= _SHORT_ROWS)
        self.log_bytes += len(text)
        return bool(ended)

    async def sample(self, loads: Iterable[tuple[Worker, Load]], now: float) -> None:
        """Store the samples that are due of these loads."""
        sampler = self._sampler
        if sampler and (rows := sampler.of_loads(loads, now)):
            await self.write(lambda connection: sampler.write(connection, rows), is_short=len(rows) <= _SHORT_ROWS)

    async def write(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
        """Run other work in a transaction of its own. Raises StoreBroken if any of it fails."""
        if self._broken is not None:
            raise self._broken
        try:
            return await self._write(work, is_short=is_short)
        except StoreBroken as broken:
            self._broken = broken
            raise


def _before(batch: Batch, effects: Effects) -> list[_Work]:
    """Return what is to be done before a step's rows are written: mostly nothing."""
    work: list[_Work] = []
    if batch.events and isinstance(batch.events[0], SnapshotWritten):
        work.append(partial(log_snapshots.write, now=batch.now))
    if effects.forgotten_jobs:
        work.append(partial(forgotten_jobs.forget, gone=effects.forgotten_jobs))
    return work


def _deletes(effects: Effects) -> list[Write]:
    """Return the deletes of single rows, which come before all writes, because a program may be inserted again."""
    if not (effects.forgotten or effects.dropped_by_wings or effects.gone):
        return []
    gone = [(name,) for name in effects.gone]
    deletes: list[Write] = [(_FORGET, effects.forgotten), (_DISBAND, effects.dropped(Gang))]
    deletes += [(_UNLIMIT, effects.dropped(Limit)), (_OUTDATE, effects.dropped(SavedCheckpoint))]
    deletes += [(statement, gone) for statement in _GONE]
    return [(statement, rows) for statement, rows in deletes if rows]


def _note_ends(connection: Connection, ends: list[Values]) -> None:
    """Store the ends of jobs that must be notified. Those that are there already stay as they are."""
    new = insert_into(notifications, connection.dialect.name)
    connection.execute(new.on_conflict_do_nothing(index_elements=list(notifications.primary_key)), ends)


_rows_of = itemgetter(1)
_LOG = Statement(lambda _: insert(event_log).inline().values(at=bindparam("at"), batch=bindparam("batch")))


def _deleting(table: Table, *columns: str) -> Statement:
    """Return a statement that deletes the rows with these values."""
    return Statement(lambda _: delete(table).where(*(table.c[name] == bindparam(f"of_{name}") for name in columns)))


_FORGET, _DISBAND = _deleting(programs, "owner", "name", "folder"), _deleting(gangs, "job", "task", "first")
_UNLIMIT, _OUTDATE = _deleting(limits, "name", "user"), _deleting(checkpoints, "job", "task", "manifest")
_GONE = (
    _deleting(workers, "name"),
    _deleting(carriers, "name"),
    _deleting(tokens, "worker"),
    _deleting(sleepers, "worker"),
)
"""A worker that is forgotten loses its token and has to join again."""
_ENDED_LATE = update(attempts).where(
    attempts.c.job == bindparam("of_job"),
    attempts.c.task == bindparam("of_task"),
    attempts.c.number == bindparam("of_number"),
    attempts.c.worker == bindparam("of_worker"),
    attempts.c.state == AttemptState.LOST,
)
"""A result of an attempt that the scheduler has forgotten: recorded if its row still says lost."""
