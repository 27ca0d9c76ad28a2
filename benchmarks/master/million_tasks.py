"""Cost of a job of a million tasks to its master: time until it is accepted, memory, duration of a restart.

A master with its default settings runs on this computer. It is given the job twice: as a grid, which is a rule, and
as a row file, whose lines are read one by one. Then it is started again, with all of them queued; the yardstick is
the start of a master that has nothing. At last it is given a tenth as many tasks that are listed, each for itself.

    python benchmarks/master/million_tasks.py [--tasks 1000000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import psutil

from benchmarks.master.swarm import master
from loopline.client import AsyncClient
from loopline.transfer.row_upload import upload, written
from loopline_shared.job.parameters import Range, RowFile
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import Page, TaskView
from loopline_shared.spec import JobSpec, TaskSpec

COMMAND = ["train", "--lr", "{lr}", "--seed", "{seed}"]


@dataclass(frozen=True)
class Figures:
    form: str
    upload_s: float
    submission_s: float
    first_page_s: float
    middle_page_s: float
    one_task_s: float
    memory_before_mb: float
    memory_after_mb: float
    memory_peak_mb: float


@dataclass(frozen=True)
class All:
    forms: list[Figures]
    start_s: float  # until it serves, with nothing in its database ...
    restart_s: float  # ... and with all these tasks queued
    listed: int
    listed_s: float  # until they were accepted


def memory_mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


@asynccontextmanager
async def watched(process: psutil.Process) -> AsyncIterator[list[float]]:
    """Sample the memory of a process as often as possible."""
    seen = [memory_mb(process)]

    async def watch() -> None:
        while True:
            seen.append(memory_mb(process))
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()


async def timed(client: AsyncClient, job: int, query: dict[str, str]) -> float:
    begin = time.perf_counter()
    await client.http.ask(Page[TaskView], "GET", f"/jobs/{job}/tasks", params=query)
    return time.perf_counter() - begin


async def measure(form: str, tasks: int, process: psutil.Process, client: AsyncClient) -> Figures:
    rows = ({"lr": number / 1000, "seed": number} for number in range(1, tasks + 1))
    upload_s = 0.0
    async with written(rows) as lines, watched(process) as seen:
        begin = time.perf_counter()
        if form == "rows":
            await upload(client, lines)
            upload_s = time.perf_counter() - begin
            parameters: object = RowFile(file=f"sha256:{lines.sha256}")
        else:
            parameters = {"lr": [0.1], "seed": Range(range=[1, tasks])}
        job = (await client.submit(JobSpec(command=COMMAND, parameters=parameters))).id  # type: ignore[arg-type]
        submission_s = time.perf_counter() - begin - upload_s
        first_page_s = await timed(client, job, {"limit": "1000"})
        middle_page_s = await timed(client, job, {"limit": "1000", "cursor": str(tasks // 2)})
        begin = time.perf_counter()
        await client.task(TaskId(job, tasks // 2))
        one_task_s = time.perf_counter() - begin
    times = (round(second, 4) for second in (upload_s, submission_s, first_page_s, middle_page_s, one_task_s))
    return Figures(form, *times, *(round(mb, 1) for mb in (seen[0], memory_mb(process), max(seen))))


async def measure_all(tasks: int) -> All:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with master(folder):
            pass  # creates the database and compiles all modules
        begin = time.perf_counter()
        with master(folder) as (process, url):
            start_s = time.perf_counter() - begin
            async with AsyncClient(url, None) as client:
                await measure("grid", 1000, process, client)  # so that all of it is loaded
                forms = [await measure(form, tasks, process, client) for form in ("grid", "rows")]
        begin = time.perf_counter()
        with master(folder) as (_, url):
            restart_s = time.perf_counter() - begin
            listed = [TaskSpec(command=["train", str(number)]) for number in range(tasks // 10)]
            async with AsyncClient(url, None) as client:
                begin = time.perf_counter()
                await client.submit(JobSpec(tasks=listed))
                listed_s = time.perf_counter() - begin
    return All(forms, round(start_s, 2), round(restart_s, 2), len(listed), round(listed_s, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    figures = asyncio.run(measure_all(chosen.tasks))
    if chosen.json:
        print(json.dumps(asdict(figures), indent=2))
        return
    for one in figures.forms:
        print(f"{chosen.tasks:,} tasks as a {one.form.replace('rows', 'row file')}:")
        print(f"  accepted in {one.submission_s:.3f} s, after an upload of {one.upload_s:.2f} s")
        pages = f"the first in {one.first_page_s:.3f} s, the middle one in {one.middle_page_s:.3f} s"
        print(f"  pages of 1,000 tasks: {pages}; the task in the middle in {one.one_task_s:.3f} s")
        memory = f"{one.memory_before_mb:.0f} MB before, {one.memory_after_mb:.0f} MB after"
        print(f"  the master's memory: {memory}, {one.memory_peak_mb:.0f} MB at most")
    print(f"{figures.listed:,} tasks that are listed: accepted in {figures.listed_s:.2f} s")
    print(f"a start takes {figures.start_s:.2f} s, with all these queued (but the listed) {figures.restart_s:.2f} s")


if __name__ == "__main__":
    main()
