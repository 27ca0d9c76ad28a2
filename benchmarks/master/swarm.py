"""Cost of a task to its master: ``python -m benchmarks.master.swarm [--short] [--json]``.

A real master (its own process, SQLite with synchronous=FULL, its default settings) and a swarm of light workers over
real sockets (benchmarks/light). Measured is the processor time of the master alone, from the coming of the workers
until the last result is acknowledged; seconds say more about the machine than about the master. At 1 to 1,000
workers, and at 1 to 1,000 thousand queued tasks, the cost of one should be the same. Beside it, in the same run: a
master without features (benchmarks/light/floor.py), and the same master on a disk that takes 5 ms longer for each
commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.light import floor
from benchmarks.light.workers import Tally, swarm
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

ROOT = Path(__file__).parents[2]
COMMAND = ["work", "--number", "{i}"]
WINDOW = 34  # tasks that a worker of the floor has in hand: as many as one of the master has by default
SLOW_DISK_S = 0.005
SLOTS = 2
_SHARE = 50  # tasks of each worker at least, so that the filling of its queue counts for little


@dataclass(frozen=True)
class Row:
    what: str
    workers: int
    queued: int
    tasks: int
    cpu_us: float  # of the master, a task
    tasks_s: float
    batch: float  # results in a Report
    bytes_queued: float  # of the master's memory, a queued task


@contextmanager
def master(
    folder: Path, *flags: str, tokens: bool = False, delay_s: float = 0.0, profile: str = ""
) -> Iterator[tuple[psutil.Process, str]]:
    """Start a master; yield its process and its address. ``tokens``: it asks for them."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(ROOT)}
    program = ["benchmarks.light.slow_disk", str(delay_s)] if delay_s else ["loopline_master"]
    program = ["cProfile", "-o", profile, "-m", *program] if profile else program
    options = ["--port", "0", "--data-dir", str(folder / "master"), *([] if tokens else ["--no-tokens"]), *flags]
    command = [sys.executable, "-m", *program, *options]
    with (folder / "master.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=-1, stderr=log)
    try:
        assert process.stdout
        line = next(line for line in process.stdout if "serves at" in line)
        yield psutil.Process(process.pid), line.split("serves at ")[1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(
    what: str, workers: int, queued: int, tasks: int, *flags: str, delay_s: float = 0.0, profile: str = ""
) -> Row:
    """Measure ``tasks`` of the queued tasks, brought by the workers. ``profile``: output file of cProfile."""
    with (
        tempfile.TemporaryDirectory() as folder,
        master(Path(folder), *flags, delay_s=delay_s, profile=profile) as (process, url),
    ):
        async with AsyncClient(url, None) as client:
            await client.submit(JobSpec(command=COMMAND))  # so that all of it is loaded
            memory = process.memory_info().rss
            await client.submit(JobSpec(command=COMMAND, parameters={"i": Range(range=[1, queued])}))
        memory = process.memory_info().rss - memory
        began_s = cpu_s(process)
        brought = await swarm(url, {}, workers, SLOTS, Tally(tasks))
        spent_s = cpu_s(process) - began_s
    return Row(
        what,
        workers,
        queued,
        brought.tasks,
        round(spent_s / brought.tasks * 1e6, 1),
        round(brought.tasks / brought.seconds),
        round(brought.tasks / brought.reports, 1),
        round(max(0, memory) / queued, 1),
    )


async def measure_lone(tasks: int, profile: str = "") -> dict[str, float]:
    """Measure single tasks, each submitted once the user has the result of the one before. Returns the master's CPU
    time per task in milliseconds, and the times that the user waits, from request to result.

    The acknowledgement to the worker is not measured, since no one waits for it (links/connection.py).
    """
    with tempfile.TemporaryDirectory() as folder, master(Path(folder), profile=profile) as (process, url):
        async with AsyncClient(url, None) as client:
            took_s, warm = [], 20
            bringing = asyncio.create_task(swarm(url, {}, 1, SLOTS, Tally(tasks + warm)))
            for number in range(tasks + warm):
                if number == warm:
                    began_s = cpu_s(process)
                begin = time.perf_counter()
                job = await client.submit(JobSpec(command=COMMAND))
                results = [one async for one in client.results(job.id)]
                assert [one.state for one in results] == ["succeeded"], results
                took_s.append(time.perf_counter() - begin)
            spent_s = cpu_s(process) - began_s
            await bringing
    took_s = sorted(took_s[warm:])
    p99_s = took_s[len(took_s) * 99 // 100]
    return {"cpu_ms": spent_s / tasks * 1e3, "p50_ms": median(took_s) * 1e3, "p99_ms": p99_s * 1e3}


async def measure_floor(workers: int, tasks: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks.light.floor",
            str(Path(folder) / "floor.db"),
            str(10 * tasks),
            str(WINDOW),
        ]
        process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=-1)  # noqa: ASYNC220
        try:
            assert process.stdout
            port = int(process.stdout.readline())
            began_s = cpu_s(psutil.Process(process.pid))
            seconds = await floor.bring(port, workers, tasks)
            spent_s = cpu_s(psutil.Process(process.pid)) - began_s
        finally:
            process.kill()
            process.communicate()
    return Row("floor", workers, tasks, tasks, round(spent_s / tasks * 1e6, 1), round(tasks / seconds), WINDOW / 2, 0)


def grid(short: bool) -> Iterator[tuple[str, int, int]]:
    """Return the measurements to make: (name, workers, queued)."""
    for workers in (1, 100) if short else (1, 10, 100, 1000):
        yield "workers", workers, 100_000
    for queued in (1_000_000,) if short else (10_000, 1_000_000):
        yield "queued", 10, queued


async def measure_all(tasks: int, short: bool) -> tuple[list[Row], dict[str, float]]:
    rows = [await measure_floor(10, 10 * tasks)]
    for what, workers, queued in grid(short):
        rows.append(await measure(what, workers, queued, min(queued, max(tasks, _SHARE * workers))))
    rows.append(await measure("slow disk", 10, 100_000, tasks, delay_s=SLOW_DISK_S))
    return rows, await measure_lone(100 if short else 300)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", help="of the master with ten workers, into this file")
    parser.add_argument("--profile-lone")
    chosen = parser.parse_args()
    if chosen.profile:
        print(asyncio.run(measure("profile", 10, 100_000, chosen.tasks, profile=chosen.profile)))
        return
    if chosen.profile_lone:
        print(asyncio.run(measure_lone(300, profile=chosen.profile_lone)))
        return
    rows, lone = asyncio.run(measure_all(2_000 if chosen.short else chosen.tasks, chosen.short))
    if chosen.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "lone": lone}, indent=2))
        return
    print(f"{'':10} {'workers':>8} {'queued':>10} {'us/task':>8} {'tasks/s':>8} {'batch':>6} {'B/queued':>9}")
    for row in rows:
        figures = f"{row.cpu_us:>8,.0f} {row.tasks_s:>8,.0f} {row.batch:>6.1f} {row.bytes_queued:>9,.1f}"
        print(f"{row.what:10} {row.workers:>8,} {row.queued:>10,} {figures}")
    took = f"{lone['p50_ms']:.2f} ms p50, {lone['p99_ms']:.2f} ms p99 from request to the user's having the result"
    print(f"one at a time: {lone['cpu_ms']:.2f} ms of the master's processor, {took}")


if __name__ == "__main__":
    main()
