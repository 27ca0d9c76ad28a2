"""Growth of the event log: bytes a day of idle workers, and of a grid at work.

    python -m benchmarks.master.event_log [--hours 24] [--json]

The master's engine and its SQLite database are real, time is not: workers report every ten seconds of a clock that
jumps, so a day takes seconds. Their loads change as on real computers: free memory always, spare CPU by the little
that runs on an idle one, the delay of the network about its mean. Counted are the characters of the log's entries
(without SQLite's own, some 20 an entry), and beside them the growth of the whole database, rows and samples included.
*Owners* come and go twenty times a day; their programs take a part of the processor that changes every few minutes.
*At work*: four tasks a minute on each worker. *Each Report an entry*: as before Reports without news were kept back,
an hour of it. The log is replayed at the end of each line.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from random import Random

from sqlalchemy import func, select

from benchmarks.harness.tables import answer, parser, progress, table
from loopline_master.core.events import JobSubmitted, MasterStarted, SchedulerSettings, WorkerJoined, WorkerReported
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Clock, Engine
from loopline_master.store import Store, open_store
from loopline_master.store.replay import check
from loopline_master.store.tables import event_log
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Result
from loopline_shared.protocol.worker_link import Assign, Report
from loopline_shared.spec import JobSpec

CORES = 4
EVERY_S = 10.0
DAY_S = 86_400.0
_FACTS = Facts("linux", "x86_64", "3.11", "0.2", "a computer", cpus=CORES, memory_bytes=2**33, slots=CORES)


@dataclass
class Computer:
    """A worker as its Reports show it."""

    name: str
    random: Random
    has_owner: bool = False
    seq: int = 0
    seen: int = 0
    busy: float = 0.03  # cores that other programs take
    delay_s: float = 0.004  # smoothed, as workers do
    is_used: bool = False
    running: dict[AttemptId, float] = field(default_factory=dict)  # until when

    def report(self, now: float) -> Report:
        """Return the next Report, with the results of tasks that have ended."""
        self.seq += 1
        over = [attempt for attempt, until in self.running.items() if until <= now]
        for attempt in over:
            del self.running[attempt]
        results = tuple(Result(each, Outcome.SUCCEEDED, 0, wall_s=60.0, cpu_s=60.0) for each in over)
        held = tuple(Held(each, wall_s=60.0 - (until - now)) for each, until in self.running.items())
        return Report(self.seq, self.seen, held, results, self._load())

    def _load(self) -> Load:
        random = self.random
        if self.has_owner and random.random() < 40 * EVERY_S / DAY_S:
            self.is_used = not self.is_used
        target = (random.choice([0.1, 0.5, 1.5]) if random.random() < 0.03 else self.busy) if self.is_used else 0.03
        self.busy = max(0.0, target + random.gauss(0.0, 0.01))
        self.delay_s += (0.004 * math.exp(random.gauss(0.0, 0.5)) - self.delay_s) / 8
        return Load(
            CORES,
            round(CORES - self.busy, 3),
            memory_available_bytes=random.randrange(2**32, 2**33),
            disk_free_bytes=random.randrange(2**36, 2**37),
            cpu_pressure=round(random.random(), 2),
            memory_pressure=0.0,
            io_pressure=0.1,
            in_use=self.is_used,
            idle_s=round(random.uniform(0, 9999), 1),
            delay_s=self.delay_s,
        )


class JumpingClock(Clock):
    """A clock that shows what it is set to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


class World:
    """The master's engine under a clock that jumps from event to event."""

    def __init__(self, store: Store, computers: list[Computer], *, keeps_back: bool) -> None:
        self._clock = JumpingClock()
        self._engine = Engine(Scheduler(), store, self._clock)
        self._keeps_back = keeps_back
        self._computers = {computer.name: computer for computer in computers}
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._session: dict[str, int] = defaultdict(lambda: 1)

    async def begin(self, tasks: int) -> None:
        self._engine.post(MasterStarted(SchedulerSettings("fair", shares=True, report_every_s=EVERY_S)))
        for name in self._computers:
            self._engine.post(WorkerJoined(name, 1, "boot", _FACTS))
        if tasks:
            spec = JobSpec(command=["work", "{i}"], parameters={"i": Range(range=[1, tasks])}, size=60.0)
            self._engine.post(JobSubmitted("ann", spec))
        await self._engine.turn(self)

    async def run(self, seconds: float) -> None:
        """Let time pass."""
        until, random = self._clock.now + seconds, Random(7)
        reports: list[tuple[float, str]] = []
        for name in self._computers:
            heappush(reports, (self._clock.now + random.uniform(0.0, EVERY_S), name))
        while reports[0][0] < until:
            at, name = heappop(reports)
            while (wake_at := self._engine.wake_at) is not None and wake_at <= at:
                self._clock.now = max(self._clock.now + 1e-6, wake_at)
                await self._engine.turn(self)
            self._clock.now = max(self._clock.now + 1e-6, at)
            computer = self._computers[name]
            event = WorkerReported(name, 1, computer.report(self._clock.now))
            if not (self._keeps_back and self._engine.keep_back(event)):
                self._engine.post(event)
                await self._engine.turn(self)
            ends_at = min(computer.running.values(), default=math.inf)
            heappush(reports, (min(self._clock.now + EVERY_S, max(ends_at, self._clock.now)), name))

    def deliver(self, worker: str, assign: Assign) -> None:
        computer = self._computers[worker]
        computer.seen = assign.seq
        computer.running.update((run.attempt, self._clock.now + 60.0) for run in assign.run)

    def close(self, worker: str, session: int) -> None:
        raise AssertionError(f"{worker} lost its lease")


@dataclass(frozen=True)
class Row:
    what: str
    workers: int
    entries: float  # a worker and day
    log_kb: float  # a worker and day
    database_kb: float  # the whole database, a worker and day
    tasks: int = 0


async def measure(
    what: str, workers: int, hours: float, *, owners: bool = False, tasks: bool = False, keeps_back: bool = True
) -> Row:
    """Return what is written, extrapolated to a day."""
    progress(f"{what}, {workers} workers, {hours:g} h")
    computers = [Computer(f"pc-{number:03}", Random(number), has_owner=owners) for number in range(workers)]
    count = round(workers * CORES * hours * 60 * 1.2) if tasks else 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "loopline.db"
        async with open_store(f"sqlite:///{file}") as store:
            world = World(store, computers, keeps_back=keeps_back)
            await world.begin(count)
            empty = (await store.size()).total_bytes
            await world.run(hours * 3600.0)
            grown = (await store.size()).total_bytes - empty
            query = select(func.count(), func.sum(func.length(event_log.c.batch)))
            entries, size = await store._read(lambda connection: connection.execute(query).one())
        assert await check(str(file)) == [], "log and rows differ"
    share = 24 / hours / workers
    return Row(what, workers, entries * share, size * share / 1e3, grown * share / 1e3, count)


async def main() -> None:
    asking = parser(__doc__)
    asking.add_argument(
        "--hours", type=float, default=24.0, help="of the clock that jumps, for workers without tasks"
    )
    chosen = asking.parse_args()
    rows = [
        await measure("idle", 1, chosen.hours),
        await measure("idle", 100, chosen.hours if chosen.full else chosen.hours / 4),
        await measure("idle, an owner comes and goes", 100, chosen.hours / 4, owners=True),
        await measure("idle, each Report an entry", 1, 1.0, keeps_back=False),
        await measure("at work", 10, 0.25, tasks=True),
        await measure("at work, each Report an entry", 10, 0.25, tasks=True, keeps_back=False),
    ]
    head = ("a worker and day", "workers", "entries", "kB of log", "kB of database")
    lines = [
        (row.what, row.workers, f"{row.entries:,.0f}", f"{row.log_kb:,.1f}", f"{row.database_kb:,.1f}")
        for row in rows
    ]
    answer([asdict(row) for row in rows], table(head, lines), chosen.json)


if __name__ == "__main__":
    asyncio.run(main())
