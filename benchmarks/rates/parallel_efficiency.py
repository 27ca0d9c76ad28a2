"""Does it pay to have 20 computers? The headline of Shirotani et al.: the same bag of tasks on 1 worker and on 20,
through the real master, link, spool and store. (The paper: 1/17 of the time on 20 workstations, 85 % efficiency.)

All workers are agents of their own on this computer, of one slot each; their tasks wait rather than compute, so that
few cores can host them. Speed-up is the time of one worker over that of n, from submission until the last result is
on the master's disk; efficiency is that over n. ``of ideal`` is tasks x seconds / n over the time: it includes the
cost of launching and reporting, which cancels out in the efficiency.

The full form (1, 2, 5, 10 and 20 workers; tasks of 0.1, 1 and 5 s) takes about an hour.

    python benchmarks/rates/parallel_efficiency.py [--full] [--workers 1,5] [--tasks 0.1x100] [--policy P] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import grid
from benchmarks.harness.tables import answer, parser, progress, table
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.spec import JobSpec

SHORT = [(0.1, 100)]
FULL = [(0.1, 2000), (1.0, 400), (5.0, 100)]
LOOK_EVERY_S = 0.1  # when a job is over, the master's own clock says


@dataclass(frozen=True, slots=True)
class Cell:
    """A bag of tasks on a number of workers."""

    task_s: float
    tasks: int
    workers: int
    took_s: float
    one_took_s: float  # the same bag on one worker
    busy_cores: float  # of this computer, by all there was

    @property
    def speed_up(self) -> float:
        return self.one_took_s / self.took_s

    @property
    def efficiency(self) -> float:
        return self.speed_up / self.workers

    @property
    def of_ideal(self) -> float:
        return self.task_s * self.tasks / self.workers / self.took_s


@asynccontextmanager
async def workers_of(counts: list[int], flags: list[str]) -> AsyncIterator[AsyncClient]:
    """A master and as many agents as the largest count asks for; a job that asks for ``of-5`` runs on 5 of them."""
    progress("starting the master ...")
    async with grid(1, *flags, workers=()) as one, one.client() as client:
        progress(f"starting {max(counts)} workers ...")
        for number in range(max(counts)):
            labels = [word for count in counts if number < count for word in ("--label", f"of-{count}")]
            await one.start_worker(f"w{number:02}", *labels, slots=1)
        while len([w async for w in client.workers() if w.connected and w.slots]) < max(counts):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
        yield client


async def measure(client: AsyncClient, task_s: float, tasks: int, counts: list[int]) -> AsyncIterator[Cell]:
    one_took_s = None
    for count in counts:
        progress(f"{tasks} tasks of {task_s:g} s on {count} workers ...")
        since, used = time.monotonic(), _cpu_s()
        took_s = await _run(client, task_s, tasks, count)
        busy_cores = (_cpu_s() - used) / (time.monotonic() - since)
        one_took_s = one_took_s or took_s * count
        yield Cell(task_s, tasks, count, took_s, one_took_s, busy_cores)


async def _run(client: AsyncClient, task_s: float, tasks: int, count: int) -> float:
    """Return the time from submission until the last result is on the master's disk."""
    spec = JobSpec(
        name=f"wait-{task_s:g}-on-{count}",
        command=["sleep", f"{task_s:g}"],
        parameters={"i": Range(range=[1, tasks])},
        requires=Requirements(labels=[f"of-{count}"]),
    )
    job = (await client.submit(spec)).id
    while (view := await client.job(job)).finished_at is None:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_EVERY_S)
    if view.tasks.succeeded != tasks:
        raise SystemExit(f"only {view.tasks.succeeded} of {tasks} tasks succeeded")
    return view.finished_at - view.submitted_at


def _cpu_s() -> float:
    """Return the CPU time of all processors since the computer started."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


async def run(options: argparse.Namespace) -> list[Cell]:
    flags = ["--policy", options.policy] if options.policy else []
    async with workers_of(options.workers, flags) as client:
        bags = options.tasks
        return [cell for task_s, tasks in bags async for cell in measure(client, task_s, tasks, options.workers)]


def show(cells: list[Cell]) -> str:
    head = ["task s", "tasks", "workers", "took s", "speed-up", "efficiency", "of ideal", "cores"]
    rows = (
        [f"{c.task_s:g}", c.tasks, c.workers, f"{c.took_s:.2f}", f"{c.speed_up:.2f}", f"{c.efficiency:.1%}",
         f"{c.of_ideal:.1%}", f"{c.busy_cores:.2f}"]
        for c in cells
    )  # fmt: skip
    return table(head, rows)


def bags_of(text: str) -> list[tuple[float, int]]:
    """Return the bags as (seconds, count), two of the same seconds included."""
    return [(float(seconds), int(count)) for seconds, count in (bag.split("x") for bag in text.split(","))]


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")])
    asking.add_argument("--tasks", type=bags_of, help="seconds x count, such as 0.1x200,1x20")
    asking.add_argument("--policy")
    options = asking.parse_args()
    options.workers = options.workers or ([1, 2, 5, 10, 20] if options.full else [1, 5])
    options.tasks = options.tasks or (FULL if options.full else SHORT)
    cells = asyncio.run(run(options))
    figures = ("speed_up", "efficiency", "of_ideal")
    found = [asdict(cell) | {name: getattr(cell, name) for name in figures} for cell in cells]
    answer(found, show(cells), options.json)


if __name__ == "__main__":
    main()
