"""Forgetting by age: workers that have been away for long, with their keys, and jobs that ended long ago."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from loopline_master.certificates.encryption import Encryption
from loopline_master.core.events import JobsForgotten, WorkerForgotten
from loopline_master.core.kernel.effects import Declined
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Engine
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.files.retention import Retention
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.timings import FIRST_PRUNE_AFTER_S, FORGET_PAUSE_S, PRUNE_EVERY_S

log = logging.getLogger(__name__)

DAY_S = 86400.0
_MOST_NAMED = 20
_JOBS_AT_ONCE, _TASKS_AT_ONCE = 1000, 5000


class Forgetting:
    """Forgets regularly what is older than the settings say."""

    def __init__(
        self, engine: Engine, scheduler: Scheduler, store: Store, settings: MasterSettings, retention: Retention,
        *, encryption: Encryption, now: RemovalClock,
    ) -> None:  # fmt: skip
        self._engine, self._scheduler, self._store, self._settings = engine, scheduler, store, settings
        self._retention, self._now = retention, now
        self._keys = encryption.folder / "workers"

    async def run(self) -> None:
        """Forget once in ``PRUNE_EVERY_S``, until cancelled."""
        await asyncio.sleep(FIRST_PRUNE_AFTER_S)
        while True:
            await self.forget_workers(self._now())
            await self.remove_keys()
            await self.forget_jobs(self._now())
            await asyncio.sleep(PRUNE_EVERY_S)

    async def forget_workers(self, now: float) -> list[str]:
        """Forget the workers that have been away for ``forget_workers_days``; return their names."""
        days = self._settings.forget_workers_days
        away = [one.name for one in self._scheduler.state.workers.values() if _last_seen(one) < now - days * DAY_S]
        gone = [name for name in away if not isinstance(await self._engine.post(WorkerForgotten(name)), Declined)]
        if gone:
            names = ", ".join(gone[:_MOST_NAMED])
            log.info("workers that were away for %g days are forgotten: %d, such as %s", days, len(gone), names)
        return gone

    async def forget_jobs(self, now: float) -> int:
        """Forget the jobs that ended ``keep_jobs_days`` ago, some at a time; return how many were found."""
        days, last, count = self._settings.keep_jobs_days, 0, 0
        if days is None:
            return 0
        while True:
            before = now - days * DAY_S
            for job, tasks in await self._store.expired_jobs(before, last, _JOBS_AT_ONCE):
                if tasks > _TASKS_AT_ONCE:
                    await self._shorten(job, before)
            async with self._retention.releasing:  # no job is retried meanwhile
                expired = await self._store.expired_jobs(before, last, _JOBS_AT_ONCE)
                for batch in _batches(expired):
                    await self._engine.post(JobsForgotten(batch))
            count += len(expired)
            if len(expired) < _JOBS_AT_ONCE:
                break
            last = expired[-1][0]
        if count:
            log.info("jobs that ended more than %g days ago are forgotten: %d", days, count)
        return count

    async def _shorten(self, job: int, before: float) -> None:
        """Forget most tasks of a job that ended before this moment, some at a time. The rest goes at once."""
        async with self._retention.releasing:  # it is not retried before it is marked, and never after
            state = self._scheduler.state
            ended = await self._store.expired_jobs(before, job - 1, 1)
            if job in state.jobs or state.index.dependents.followers(job) or not ended or ended[0][0] != job:
                return
            first = await self._store.first_tasks(job)
            are_left = await self._store.shorten(job, _TASKS_AT_ONCE, time.time(), first)
        while are_left:
            await asyncio.sleep(FORGET_PAUSE_S)
            are_left = await self._store.shorten(job, _TASKS_AT_ONCE, time.time(), first)

    async def remove_keys(self) -> None:
        """Remove the keys of workers whose tokens are gone."""
        files = await asyncio.to_thread(_files, self._keys)  # before the tokens: a key is written after its token
        if files:
            known = await self._store.tokens.of_workers()
            await asyncio.to_thread(_remove, [file for file in files if file.name not in known])


def _batches(jobs: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Yield jobs, given with the numbers of their tasks, of which one transaction deletes no more than it should."""
    batch: list[int] = []
    tasks = 0
    for job, count in jobs:
        if batch and tasks + count > _TASKS_AT_ONCE:
            yield tuple(batch)
            batch, tasks = [], 0
        batch.append(job)
        tasks += count
    if batch:
        yield tuple(batch)


def _last_seen(worker: Worker) -> float:
    """Return when a worker was last heard of; one that is connected is seen at all times."""
    return float("inf") if worker.session is not None else worker.reported_at or worker.joined_at


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
