"""The master's memory on disk: written step by step by one hand, read by many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import select

from master.scheduling.effects import Effects
from master.scheduling.events import Batch, JobRetried
from master.scheduling.snapshot import Snapshot
from master.store import audit, restart
from master.store.attempts import Attempts
from master.store.broken import StoreBroken
from master.store.database import Database, open_database, parse_url
from master.store.files import Files
from master.store.forecasts import Forecasts
from master.store.history import History
from master.store.jobs import Jobs
from master.store.migrate import prepare
from master.store.notifications import Notifications
from master.store.programs import Programs
from master.store.results import Results
from master.store.samples import SampleQueries, Sampler
from master.store.stories import Stories
from master.store.tasks import Tasks
from master.store.timeline import Timelines
from master.store.tokens import Tokens
from master.store.workers import Workers
from master.store.writer import Writer
from shared.api import PassingReport
from shared.model import Order

__all__ = ["Store", "StoreBroken", "open_store"]


@asynccontextmanager
async def open_store(url: str, *, keep_samples_s: float = 14 * 86400.0) -> AsyncIterator[Store]:
    """The store at a database URL, brought to this release's tables, and shut to any other master."""
    parsed = parse_url(url)
    async with open_database(parsed) as database:
        await prepare(database, parsed)
        yield Store(database, keep_samples_s)


class Store:
    """What is asked of the store, by subject."""

    def __init__(self, database: Database, keep_samples_s: float) -> None:
        self._read = database.read
        self._writer = Writer(database.write, Sampler(keep_samples_s))
        self.jobs = Jobs(self._read, database.look)
        self.tasks = Tasks(self._read)
        self.attempts = Attempts(self._read)
        self.history = History(self._read)
        self.files = Files(self._read, self._writer)
        self.timelines = Timelines(self._read)
        self.samples = SampleQueries(self._read)
        self.results = Results(self._read)
        self.stories = Stories(self._read)
        self.workers = Workers(self._read)
        self.forecasts = Forecasts(self._read, self._writer)
        self.notifications = Notifications(self._read, self._writer)
        self.programs = Programs(self._read)
        self.tokens = Tokens(self._read, self._writer)

    async def commit(self, batch: Batch, effects: Effects) -> None:
        """Store one step, whole or not at all (StoreBroken: the master must stop)."""
        await self._writer.commit(batch, effects)

    async def check(self) -> None:
        """StoreBroken where the database takes no writing."""
        await self._writer.write(lambda connection: connection.execute(select(1)).scalar())

    async def snapshot(self) -> Snapshot:
        """What the scheduler goes on from."""
        return await self._read(restart.snapshot)

    async def retry_material(self, job: int) -> JobRetried | None:
        """The event that has a job retried; None: there is no such job. Only an ended one may be posted."""
        return await self._read(lambda connection: restart.retry_material(connection, job))

    async def passings(self, order: Order, limit: int = 100) -> PassingReport:
        """The audit of the order guarantee; ``order`` is the one now in force."""
        return await self._read(lambda connection: audit.report(connection, order, limit))
