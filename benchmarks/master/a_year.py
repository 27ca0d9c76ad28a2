"""A year of a master in minutes: do its database, its log and its memory stay within bounds?

    python -m benchmarks.master.a_year [--days 365] [--full] [--unbounded] [--json]

The master's engine, its SQLite file and all removal are real; time is not: it jumps from Report to Report, and over
the unused hours of a day. Each day two jobs of twenty tasks are computed, and two workers appear that never return.
The log and absent workers are kept for a twelfth of the year, jobs for a sixth, samples for a twenty-fourth. After
that time nothing may grow: the largest database, log and memory of the last half of the year are compared with the
largest of the time just before it. The short form simulates five minutes of each day with 3 workers; the full one,
ten minutes with 20. *Unbounded*: everything is kept, as a control that must be detected. At the end the log is
replayed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import psutil
from sqlalchemy import func, select

from benchmarks.harness.tables import answer, parser, progress, table
from benchmarks.master.event_log import DAY_S, Computer, World
from loopline_master.core.events import JobSubmitted, WorkerJoined, WorkerLeft
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.history.forgetting import Forgetting
from loopline_master.store import Store, open_store
from loopline_master.store.replay import check
from loopline_master.store.tables import attempts, jobs, workers
from loopline_shared.job.parameters import Range
from loopline_shared.model import Facts
from loopline_shared.spec import JobSpec

MONTHS = 12
JOBS, TASKS, NEWCOMERS = 2, 20, 2
WITHIN = 1.15
"""Allowed ratio of the largest value in the last half of the year to the largest before it."""
_FACTS = Facts("linux", "x86_64", "3.11", "0.2", "a computer", cpus=4, memory_bytes=2**33, slots=4)


@dataclass(frozen=True)
class Row:
    day: int
    database_mb: float
    log_entries: int
    log_days: float
    jobs: int
    attempts: int
    workers: int
    memory_mb: float  # of this process, which is the master and its workers


class Year(World):
    """A grid whose days are lived through in part, and kept in order once a day."""

    def __init__(self, store: Store, computers: list[Computer], days: int, *, is_bounded: bool) -> None:
        super().__init__(store, computers, keeps_back=True)
        self._store, self._is_bounded, self._keep_log_s = store, is_bounded, days / MONTHS * DAY_S
        settings = SimpleNamespace(keep_jobs_days=2 * days / MONTHS, forget_workers_days=days / MONTHS)
        retention = SimpleNamespace(releasing=asyncio.Lock())
        self._forgetting = Forgetting(
            self._engine,
            self._engine._scheduler,
            store,
            cast("Any", settings),
            cast("Any", retention),
            encryption=cast("Any", SimpleNamespace(folder=Path())),
            now=RemovalClock(),
        )

    async def day(self, number: int, lived_s: float) -> None:
        """Compute the day's jobs, let its newcomers go, and forget what is too old."""
        ends_at, names = self._clock.now + DAY_S, [f"pc-{number}-{each}" for each in range(NEWCOMERS)]
        for name in names:
            self._computers[name] = Computer(name, Random(name))
            self._engine.post(WorkerJoined(name, 1, "boot", _FACTS))
        spec = JobSpec(command=["work", "{i}"], parameters={"i": Range(range=[1, TASKS])}, size=60.0 * TASKS)
        for _ in range(JOBS):
            self._engine.post(JobSubmitted("ann", spec))
        await self._engine.turn(self)
        await self.run(lived_s)
        for name in names:
            self._engine.post(WorkerLeft(name, 1))
            del self._computers[name]
        await self._engine.turn(self)
        if self._is_bounded:
            await self._forget()
        self._clock.now = ends_at
        self._engine.restart_leases()
        await self._engine.turn(self)

    async def _forget(self) -> None:
        now, keep_s = self._clock.now, self._keep_log_s
        await self._while_it_turns(self._forgetting.forget_workers(now))
        await self._while_it_turns(self._forgetting.forget_jobs(now))
        if await self._store.is_snapshot_due(keep_s, now):
            await self._while_it_turns(self._engine.write_snapshot())
        while await self._store.forget_log(keep_s, now):
            pass

    async def _while_it_turns(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0.001)
            if not task.done():
                await self._engine.turn(self)
        await task

    async def row(self, day: int) -> Row:
        """Return what there is now."""
        size = await self._store.size()
        counts = [select(func.count()).select_from(each) for each in (jobs, attempts, workers)]
        found = await self._store._read(lambda connection: tuple(connection.scalar(count) or 0 for count in counts))
        log_days = (self._clock.now - (size.log_began_at or self._clock.now)) / DAY_S
        memory = psutil.Process().memory_info().rss / 1e6
        return Row(day, size.total_bytes / 1e6, size.log_entries, log_days, found[0], found[1], found[2], memory)


async def measure(days: int, computers: int, lived_s: float, *, is_bounded: bool) -> list[Row]:
    """Return a row for each month."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "loopline.db"
        async with open_store(f"sqlite:///{file}", keep_samples_s=days / 2 / MONTHS * DAY_S) as store:
            there = [Computer(f"pc-{n}", Random(n)) for n in range(computers)]
            year = Year(store, there, days, is_bounded=is_bounded)
            await year.begin(0)
            for day in range(1, days + 1):
                await year.day(day, lived_s)
                if day % (days // MONTHS) == 0:
                    rows.append(await year.row(day))
                    progress(f"day {day}: {rows[-1].database_mb:.1f} MB")
        assert await check(str(file)) == [], "log and rows differ"
    return rows


def grown(rows: list[Row], days: int) -> dict[str, float]:
    """Return how many times the largest of before the last half of the year the largest of that half is."""
    settled = [row for row in rows if 2.5 * days / MONTHS < row.day <= days / 2]
    late = [row for row in rows if row.day > days / 2]
    return {
        name: max(getattr(row, name) for row in late) / max(getattr(row, name) for row in settled)
        for name in ("database_mb", "log_entries", "memory_mb")
    }


async def main() -> int:
    asking = parser(__doc__)
    asking.add_argument(
        "--days", type=int, default=365, help="of the year, at least 24: what is kept, is in proportion"
    )
    asking.add_argument("--unbounded", action="store_true", help="keep all for ever, as a control")
    chosen = asking.parse_args()
    began = time.perf_counter()
    computers, lived_s = (20, 600.0) if chosen.full else (3, 300.0)
    rows = await measure(chosen.days, computers, lived_s, is_bounded=not chosen.unbounded)
    times = grown(rows, chosen.days)
    is_within = all(each <= WITHIN for each in times.values())
    head = ("day", "database MB", "log entries", "log days", "jobs", "attempts", "workers", "memory MB")
    lines = [
        (
            row.day,
            f"{row.database_mb:.1f}",
            f"{row.log_entries:,}",
            f"{row.log_days:.0f}",
            f"{row.jobs:,}",
            f"{row.attempts:,}",
            row.workers,
            f"{row.memory_mb:.0f}",
        )
        for row in rows
    ]
    said = ", ".join(f"{name} {each:.2f}" for name, each in times.items())
    verdict = f"the last half against before: {said} times: {'within' if is_within else 'NOT within'} {WITHIN}"
    text = f"{table(head, lines)}\n{verdict}; {time.perf_counter() - began:.0f} s"
    answer({"rows": [asdict(row) for row in rows], "grown": times, "is_within": is_within}, text, chosen.json)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
