"""Time and memory that a master needs for requests about an ended job of a million tasks.

A database is filled with such a job and, beside it, with jobs of ten tasks, by the store's own writer. A master with
its default settings is started on it. It is asked at once, before anything is summed up, and again when that is done:
where the job's time went, each user's use, the job's trace, and a task that does not exist.

    python -m benchmarks.master.million_ended [--tasks 1000000] [--workers 200] [--database postgresql://...] [--json]
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from heapq import heapify, heapreplace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import psutil

from benchmarks.harness.tables import answer, parser, progress, table
from benchmarks.master.swarm import cpu_s, master
from loopline_master.core.events import Batch
from loopline_master.core.kernel.effects import Effects, Submitted
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Task, Worker
from loopline_master.store import Store, open_store
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptState, Facts, JobState, Order, Output, Phases, TaskState
from loopline_shared.spec import JobSpec

AT_ONCE, SMALL_JOBS, SMALL_TASKS, SLOTS = 5_000, 1_000, 10, 4
LIFE_S = 100_000.0
FACTS = Facts("linux", "x86_64", "3.11", "0.2", "a computer", cpus=SLOTS, memory_bytes=2**33, slots=SLOTS, speed=1.0)
SETTLED_S = 20.0


@dataclass(frozen=True)
class Row:
    asked: str
    first_byte_s: float
    whole_s: float
    cpu_s: float  # of the master
    bytes: int
    memory_mb: float  # of the master after it


class Filler:
    """Writes an invented history: a large job, and small ones in the same time."""

    def __init__(self, store: Store, tasks: int, workers: int, now: float) -> None:
        self._store, self._random, self._now = store, Random(1), now
        self._tasks, self._names = tasks, [f"pc-{number:04}" for number in range(workers)]
        self._free = [(now - LIFE_S, name, slot) for name in self._names for slot in range(1, SLOTS + 1)]
        heapify(self._free)
        self._takes_s = LIFE_S * workers * SLOTS / tasks / 1.3
        self._sequence = 0

    async def fill(self) -> None:
        """Write everything in batches of tasks."""
        joined = {name: Worker(name, "boot", FACTS, joined_at=1.0, lease_until=1.0) for name in self._names}
        await self._commit(self._effects(workers=joined))
        large = self._job(1, self._tasks)
        await self._commit(self._effects(jobs={1: large}, replies=[Submitted(1)]))
        for begin in range(1, self._tasks + 1, AT_ONCE):
            await self._commit(self._run(1, range(begin, min(begin + AT_ONCE, self._tasks + 1))))
        end = max(at for at, _, _ in self._free)
        await self._commit(self._effects(jobs={1: self._over(large, end)}))
        for number in range(2, SMALL_JOBS + 2):
            job = self._job(number, SMALL_TASKS)
            self._free = [(self._now - LIFE_S * self._random.random(), *one[1:]) for one in self._free]
            heapify(self._free)
            effects = self._run(number, range(1, SMALL_TASKS + 1))
            effects.jobs[number] = self._over(job, max(one.ended_at or 0.0 for one in effects.attempts.values()))
            effects.replies.append(Submitted(number))
            await self._commit(effects)

    def _job(self, number: int, tasks: int) -> Job:
        spec = JobSpec(command=["run", "{i}"], parameters={"i": Range(range=[1, tasks])})
        begin = self._now - LIFE_S
        return Job(
            number, f"user {number % 7}", spec, tasks, None, Order.HOLD, 3, 2,
            arrival=number, submitted_at=begin, state=JobState.RUNNING, started_at=begin,
        )  # fmt: skip

    def _over(self, job: Job, at: float) -> Job:
        job.state, job.finished_at, job.departure, job.succeeded = JobState.SUCCEEDED, at, job.id, job.task_count
        return job

    def _run(self, job: int, numbers: range) -> Effects:
        effects = self._effects()
        for number in numbers:
            tried = [self._attempt(job, number, at) for at in range(1, 3 if self._random.random() < 0.02 else 2)]
            self._random.shuffle(tried)
            for loser in tried[1:]:
                loser.state, loser.accepted = self._random.choice(LOSERS), False
                loser.ended_at = None if loser.state is AttemptState.LOST else loser.ended_at
            task = Task(job, number, TaskState.SUCCEEDED, started=True, attempts=len(tried))
            task.finished_at = tried[0].ended_at
            effects.tasks[task.id] = task
            effects.attempts.update({one.id: one for one in sorted(tried, key=lambda one: one.number)})
        return effects

    def _attempt(self, job: int, task: int, number: int) -> Attempt:
        at, worker, slot = self._free[0]
        took_s = self._takes_s * (0.5 + self._random.random())
        heapreplace(self._free, (at + took_s, worker, slot))
        return Attempt(
            job, task, number, worker, 1, number > 1, at, AttemptState.SUCCEEDED, started_at=at, ended_at=at + took_s,
            accepted=True, exit_code=0, wall_s=took_s, cpu_s=took_s * 0.9, peak_memory_bytes=2**26, slot=slot,
            stdout=Output(6, False, b"hello\n"), stderr=Output(), phases=Phases(0.01, 0.02, took_s),
        )  # fmt: skip

    def _effects(self, **more: Any) -> Effects:
        return Effects(Grid(next_job=SMALL_JOBS + 2, sequence=SMALL_JOBS + 2, pointer=1, now=self._now), **more)

    async def _commit(self, effects: Effects) -> None:
        await self._store.commit(Batch(self._now, []), effects)


async def ask(http: aiohttp.ClientSession, process: psutil.Process, path: str) -> Row:
    begin, size, first_s, used_s = time.perf_counter(), 0, 0.0, cpu_s(process)
    async with http.get(f"/api/v1{path}") as response:
        async for piece in response.content.iter_any():
            first_s = first_s or time.perf_counter() - begin
            size += len(piece)
    whole_s = time.perf_counter() - begin
    took_s = cpu_s(process) - used_s
    memory_mb = process.memory_info().rss / 1e6
    return Row(path, round(first_s, 4), round(whole_s, 4), round(took_s, 2), size, round(memory_mb, 1))


async def measure(folder: Path, database: str, now: float) -> dict[str, list[Row]]:
    middle = now - LIFE_S / 2
    paths = [
        "/jobs/1/explain",
        *(f"/history?by={subject}" for subject in ("user", "worker", "job")),
        f"/history?since={middle}",
        f"/history?by=worker&until={middle}",
        "/jobs/1/tasks/1000000000",
        "/jobs/1/trace",
        f"/timeline?job=1&since={now - LIFE_S}",
        "/timeline/trace?job=1",
    ]
    with master(folder, "--database", database) as (process, url):
        found: dict[str, list[Row]] = {}
        async with aiohttp.ClientSession(url, headers={"Accept-Encoding": "gzip"}) as http:
            await ask(http, process, "/jobs")
            found["at once"] = [await ask(http, process, path) for path in paths]
            progress("summing up ...")
            await asyncio.sleep(SETTLED_S)
            found["later"] = [await ask(http, process, path) for path in paths]
        return found


async def run(tasks: int, workers: int, database: str | None, keep: str | None) -> dict[str, list[Row]]:
    now = time.time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(keep or name)
        url = database or f"sqlite:///{folder / 'loopline.db'}"
        if not (folder / "filled").exists():
            async with open_store(url) as store:
                progress(f"writing {tasks:,} tasks ...")
                await Filler(store, tasks, workers, now).fill()
            (folder / "filled").write_text(str(now))
        return await measure(folder, url, float((folder / "filled").read_text()))


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int, default=1_000_000)
    asking.add_argument("--workers", type=int, default=200)
    asking.add_argument("--database", help="an empty one")
    asking.add_argument("--keep", help="a folder for the database, which is used again")
    chosen = asking.parse_args()
    found = asyncio.run(run(chosen.tasks, chosen.workers, chosen.database, chosen.keep))
    head = ("asked", "first byte s", "whole s", "CPU s", "bytes", "master MB")
    rows = [(f"{when}: {row.asked}", *list(asdict(row).values())[1:]) for when, rows in found.items() for row in rows]
    answer({when: [asdict(row) for row in rows] for when, rows in found.items()}, table(head, rows), chosen.json)


LOSERS = (AttemptState.LOST, AttemptState.FAILED, AttemptState.CANCELLED)

if __name__ == "__main__":
    main()
