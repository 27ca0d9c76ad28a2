"""Does it pay to have 20 computers? The headline of Shirotani et al.: the same bag of tasks on 1 worker and on 20,
through the real master, link, spool and store. (The paper: 1/17 of the time on 20 workstations, 85 % efficiency.)

All workers are agents of their own on this computer, of one slot each; their tasks wait rather than compute, so that
few cores can host them. Speed-up is the time of one worker over that of n, from submission until the last result is
on the master's disk; efficiency is that over n. ``of ideal`` is tasks x seconds / n over the time: what launching and
reporting cost counts there, and cancels out in the efficiency.

    python benchmarks/parallel_efficiency.py [--full] [--workers 1,5,20] [--tasks 0.1x200,1x20] [--policy P] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from loopline.client import AsyncClient
from shared.spec import JobSpec, Range, Requirements

ROOT = Path(__file__).parents[1]
SHORT = {0.1: 200, 1.0: 20}
FULL = {0.1: 2000, 1.0: 400, 5.0: 100}
LOOK_EVERY_S = 0.1  # when a job is over, the master's own clock says
MASTER = "master"


@dataclass(frozen=True, slots=True)
class Cell:
    """One bag on so many workers."""

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
async def grid(folder: Path, counts: list[int], flags: list[str]) -> AsyncIterator[AsyncClient]:
    """A master and as many agents as the largest count asks for; a job that asks for ``of-5`` runs on 5 of them."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(ROOT)}
    started: list[asyncio.subprocess.Process] = []

    async def start(log: str, module: str, *arguments: str) -> None:
        with (folder / f"{log}.log").open("ab") as file:
            command = [sys.executable, "-m", module, *arguments, "--data-dir", str(folder / log)]
            started.append(
                await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=file, stderr=file)
            )

    try:
        print("starting the master ...", file=sys.stderr, flush=True)
        await start(MASTER, "master", "--port", "0", *flags)
        url = await _url(folder / f"{MASTER}.log")
        tokens = folder / MASTER / "tokens"
        for number in range(max(counts)):
            labels = [word for count in counts if number < count for word in ("--label", f"of-{count}")]
            own = ["--name", f"w{number:02}", "--slots", "1", "--dedicated", *labels]
            await start(f"w{number:02}", "worker", "--master", url, "--token-file", str(tokens / "worker"), *own)
        async with AsyncClient(url, (tokens / "admin").read_text().strip()) as client:
            await _all_there(client, max(counts), started)
            yield client
    finally:
        for process in reversed(started):
            if process.returncode is None:
                process.terminate()
        for process in started:
            await process.wait()


async def measure(client: AsyncClient, task_s: float, tasks: int, counts: list[int]) -> AsyncIterator[Cell]:
    one_took_s = None
    for count in counts:
        print(f"{tasks} tasks of {task_s:g} s on {count} workers ...", file=sys.stderr, flush=True)
        since, used = time.monotonic(), _cpu_s()
        took_s = await _run(client, task_s, tasks, count)
        busy_cores = (_cpu_s() - used) / (time.monotonic() - since)
        one_took_s = one_took_s or took_s * count
        yield Cell(task_s, tasks, count, took_s, one_took_s, busy_cores)


async def _run(client: AsyncClient, task_s: float, tasks: int, count: int) -> float:
    """From submission until the last result is on the master's disk."""
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


async def _url(log: Path) -> str:
    while "serves at" not in (text := log.read_text()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_EVERY_S)
    return text.split("serves at ")[1].split()[0]


async def _all_there(client: AsyncClient, count: int, started: list[asyncio.subprocess.Process]) -> None:
    print(f"starting {count} workers ...", file=sys.stderr, flush=True)
    while len([w async for w in client.workers() if w.connected and w.slots]) < count:
        if any(process.returncode is not None for process in started):
            raise SystemExit("a program ended at once: run it by hand to see why")
        await asyncio.sleep(LOOK_EVERY_S)


def _cpu_s() -> float:
    """Of all processors, since the computer was started."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


async def run(options: argparse.Namespace) -> list[Cell]:
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--policy", options.policy] if options.policy else []
        async with grid(Path(folder), options.workers, flags) as client:
            for task_s, tasks in options.tasks.items():
                async for cell in measure(client, task_s, tasks, options.workers):
                    cells.append(cell)
    return cells


def show(cells: list[Cell]) -> str:
    head = "   task  tasks  workers      took  speed-up  efficiency  of ideal  cores"
    rows = [
        f"{c.task_s:>5g} s {c.tasks:>6} {c.workers:>8} {c.took_s:>7.2f} s {c.speed_up:>9.2f} {c.efficiency:>11.1%} "
        f"{c.of_ideal:>9.1%} {c.busy_cores:>6.2f}"
        for c in cells
    ]
    return "\n".join([head, *rows])


def _bags(text: str) -> dict[float, int]:
    return {float(seconds): int(count) for seconds, count in (bag.split("x") for bag in text.split(","))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="1, 2, 5, 10, 20 workers; 0.1, 1 and 5 s; about an hour")
    parser.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--tasks", type=_bags, help="seconds x count, such as 0.1x200,1x20")
    parser.add_argument("--policy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.workers = options.workers or ([1, 2, 5, 10, 20] if options.full else [1, 5, 20])
    options.tasks = options.tasks or (FULL if options.full else SHORT)
    cells = asyncio.run(run(options))
    if options.json:
        figures = ("speed_up", "efficiency", "of_ideal")
        print(json.dumps([asdict(c) | {name: getattr(c, name) for name in figures} for c in cells], indent=2))
    else:
        print(show(cells))


if __name__ == "__main__":
    main()
