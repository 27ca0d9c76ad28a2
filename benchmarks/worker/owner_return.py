"""Delay until a returning owner has the computer: from their input until the tasks are frozen.

A real master, a real worker on two slots under a real X server without a screen, two tasks that do nothing but
compute. In each round the mouse is moved by xdotool, and this program, not the worker, watches from outside when a
task last had the processor: its figure begins before xdotool is started and includes its few milliseconds. The
worker's own figures are printed too. Between two rounds, tasks run again. Needs Xvfb and xdotool.

    python benchmarks/worker/owner_return.py [--full] [--rounds 3] [--json]
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, milliseconds, parser, table
from loopline_worker.owner.owner_monitor import quantile
from tests.live.grid import Grid, wait_for
from tests.worker.presence.witnesses import move_mouse, x_server

OWNER = {"LOOPLINE_IDLE_S": "2", "LOOPLINE_RESERVE_MEMORY_BYTES": "0", "LOOPLINE_ON_BATTERY": "1"}
OWNER |= {"LOOPLINE_YIELD_TO_LOAD": "0", "LOOPLINE_GRACE_S": "3600"}
TASKS = 2
QUIET_S = 0.4
"""Time without CPU after which a task counts as frozen."""
HOG = f"exec {sys.executable} -I -S -c 'while True: pass'"


async def measure(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, x_server() as display:
        grid = Grid(Path(folder))
        try:
            await grid.start_master("--report-every-s", "0.5")
            await grid.start_worker("desk", slots=TASKS, owner=OWNER | display)
            job = await grid.submit(HOG, tasks=TASKS)
            await grid.attempts_when("tasks to run", job, lambda all_: sum(bool(a.started_at) for a in all_) == TASKS)
            seen_s = [await one_round(grid, display, number) for number in range(rounds)]
            worker = await wait_for("the worker's figures", lambda: figures(grid))
            await grid.client().cancel(job)
            await grid.no_processes()
        finally:
            await grid.stop()
    seen_s.sort()
    names = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "max_s": 1.0}
    return {
        "rounds": rounds,
        "input_to_frozen": {name: round(quantile(seen_s, part), 4) for name, part in names.items()},
        "as_the_worker_measured": worker,
    }


async def one_round(grid: Grid, display: dict[str, str], number: int) -> float:
    """Seconds from just before the mouse is moved until no task is at work."""
    hogs = await wait_for("tasks to compute", lambda: running(grid), seconds=300)
    await asyncio.sleep(random.uniform(0, 0.2))  # not in step with the worker's looks
    began = last = time.monotonic()
    move_mouse(display, number % 2 * 100 + 50)
    used = [cpu_ns(pid) for pid in hogs]
    while (now := time.monotonic()) - last < QUIET_S:
        await asyncio.sleep(0.001)
        if (latest := [cpu_ns(pid) for pid in hogs]) != used:
            used, last = latest, now
    return last - began


async def running(grid: Grid) -> list[int] | None:
    """The tasks, once one of them computes again: a busy computer may starve the others."""
    pids = [process.pid for process in grid.processes()]
    used = [cpu_ns(pid) for pid in pids]
    await asyncio.sleep(0.2)
    is_any = any(cpu_ns(pid) > was for pid, was in zip(pids, used, strict=True))
    return pids if len(pids) == TASKS and is_any else None


def cpu_ns(pid: int) -> int:
    """Time on a processor until now, or until the last tick of the clock, some milliseconds ago."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


async def figures(grid: Grid) -> dict[str, float] | None:
    workers = [worker async for worker in grid.client().workers()]
    yielded = next((worker.load.yielded for worker in workers if worker.load), None)
    if yielded is None or not yielded.count:
        return None
    return {"p50_s": yielded.p50_s, "p99_s": yielded.p99_s}


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--rounds", type=int, help="3; in the full form 30")
    options = asking.parse_args()
    result = asyncio.run(measure(options.rounds or (30 if options.full else 3)))
    answer(result, show(result), options.json)


def show(result: dict[str, Any]) -> str:
    seen = {"from outside": result["input_to_frozen"], "by the worker": result["as_the_worker_measured"]}
    names = ("p50_s", "p90_s", "p99_s", "max_s")
    rows = (
        [who, *(milliseconds(figures[name]) if name in figures else "" for name in names)]
        for who, figures in seen.items()
    )
    return table(["input to frozen, as seen", "p50 ms", "p90 ms", "p99 ms", "max ms"], rows)


if __name__ == "__main__":
    main()
