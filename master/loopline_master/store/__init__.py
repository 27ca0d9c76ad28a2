"""The master's database: written step by step by one connection, read by several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import select

from loopline_master.core.effects import Effects
from loopline_master.core.events import Batch, JobRetried
from loopline_master.core.state import Snapshot
from loopline_master.store import audit, restart
from loopline_master.store.broken import StoreBroken
from loopline_master.store.database.database import Database, open_database, parse_url
from loopline_master.store.eta_records import EtaRecords
from loopline_master.store.migrate import prepare
from loopline_master.store.notifications import Notifications
from loopline_master.store.queries.attempt_queries import AttemptQueries
from loopline_master.store.queries.file_references import FileReferences
from loopline_master.store.queries.job_history import JobHistories
from loopline_master.store.queries.job_queries import JobQueries
from loopline_master.store.queries.program_queries import ProgramQueries
from loopline_master.store.queries.result_queries import ResultQueries
from loopline_master.store.queries.task_queries import TaskQueries
from loopline_master.store.queries.timeline_queries import TimelineQueries
from loopline_master.store.queries.usage_queries import UsageQueries
from loopline_master.store.queries.worker_queries import WorkerQueries
from loopline_master.store.token_store import TokenStore
from loopline_master.store.worker_samples import SampleQueries, Sampler
from loopline_master.store.writer import Writer
from loopline_shared.model import Order
from loopline_shared.rest.bodies import PassingReport

__all__ = ["Store", "StoreBroken", "open_store"]


@asynccontextmanager
async def open_store(url: str, *, keep_samples_s: float = 14 * 86400.0) -> AsyncIterator[Store]:
    """Open the store at a database URL: migrate its tables to this release, and lock out other masters."""
    parsed = parse_url(url)
    async with open_database(parsed) as database:
        await prepare(database, parsed)
        yield Store(database, keep_samples_s)


class Store:
    """The database, with its queries by subject."""

    def __init__(self, database: Database, keep_samples_s: float) -> None:
        self._read = database.read
        self._writer = Writer(database.write, Sampler(keep_samples_s))
        self.jobs = JobQueries(self._read, database.look)
        self.tasks = TaskQueries(self._read)
        self.attempts = AttemptQueries(self._read)
        self.usage = UsageQueries(self._read)
        self.files = FileReferences(self._read, self._writer)
        self.timelines = TimelineQueries(self._read)
        self.samples = SampleQueries(self._read)
        self.results = ResultQueries(self._read)
        self.job_histories = JobHistories(self._read)
        self.workers = WorkerQueries(self._read)
        self.eta_records = EtaRecords(self._read, self._writer)
        self.notifications = Notifications(self._read, self._writer)
        self.programs = ProgramQueries(self._read)
        self.tokens = TokenStore(self._read, self._writer)

    async def commit(self, batch: Batch, effects: Effects) -> None:
        """Store one step completely or not at all. Raises StoreBroken if that fails: the master must then stop."""
        await self._writer.commit(batch, effects)

    async def check(self) -> None:
        """Raises StoreBroken if the database cannot be written."""
        await self._writer.write(lambda connection: connection.execute(select(1)).scalar())

    async def snapshot(self) -> Snapshot:
        """Return the entities from which the scheduler continues after a restart."""
        return await self._read(restart.snapshot)

    async def retry_material(self, job: int) -> JobRetried | None:
        """Return the event that retries a job; None if there is no such job. It may be posted for an ended job
        only.
        """
        return await self._read(lambda connection: restart.retry_material(connection, job))

    async def passings(self, order: Order, limit: int = 100) -> PassingReport:
        """Return the audit of the order guarantee. ``order`` is the one now in force."""
        return await self._read(lambda connection: audit.report(connection, order, limit))
