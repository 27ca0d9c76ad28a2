"""Work of each program for one lone task: calls of Python functions, different functions, and bytecodes.

Unlike seconds, these are the same on every computer and under any load. One task after the other, as in latency.py: a
function by the Executor, and a process by the asynchronous client. The yardstick is the floor, which takes the same
path and does nothing else. Work of libraries in C is not counted, nor work of a worker's processes below its agent.
The number of different functions matters by itself, since few are in the processor's caches after a rest.

    python benchmarks/rates/lone_task.py [--tasks 20] [--functions 0] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness import peers
from benchmarks.harness.grid import ROOT, YARDSTICKS, Figures, grid, yardstick
from benchmarks.harness.tables import answer, count, parser, progress, table
from benchmarks.rates.latency import KINDS, increment, one_process
from loopline.executor import Executor
from loopline_worker.supervisor import processes

COUNTING = ROOT / "benchmarks" / "harness" / "counting"
OURS, FLOOR = "Loopline", "the floor"
WARM_UP = 30
WAIT_S = 0.5
"""Time until programs have received a signal, and have finished their work after an answer."""
LIMIT_S = 60.0

Pids = dict[int, str]
"""Which program each process is."""
Tasks = Callable[[int], Awaitable[object]]
"""Does the given number of tasks, one after the other."""


@asynccontextmanager
async def ours(kind: str) -> AsyncIterator[tuple[Pids, Tasks]]:
    """Return the programs of a real grid, and a function that does tasks of this kind there."""
    async with grid(slots=2, environment={"PYTHONPATH": f"{COUNTING}:{ROOT}"}) as one:
        pids = {os.getpid(): "client", one.programs["master"].pid: "master", one.programs["w1"].pid: "agent"}
        if kind == peers.ONE_PROCESS:
            async with one.client() as client:

                async def run(tasks: int) -> None:
                    for _ in range(tasks):
                        await one_process(client)

                yield pids, run
            return
        executor = Executor(one.url, one.token())

        def call(tasks: int) -> None:
            for number in range(tasks):
                executor.submit(increment, number).result(LIMIT_S)

        try:
            yield pids, lambda tasks: asyncio.to_thread(call, tasks)
        finally:
            await asyncio.to_thread(executor.shutdown)


@asynccontextmanager
async def floor(kind: str, tasks: int) -> AsyncIterator[tuple[Pids, Tasks]]:
    """Return the programs of the floor, which does the number of tasks given at its start."""
    async with yardstick(sys.executable, YARDSTICKS / "floor.py", kind, "--tasks", str(tasks)) as turn:
        pids = {pid: _role(pid) for pid in processes.descendants(os.getpid())}
        yield pids, lambda _: turn()


def _role(pid: int) -> str:
    words = processes.read(f"/proc/{pid}/cmdline").split(b"\0")
    return next((role for role in ("master", "worker") if role.encode() in words), "client")


async def counted(pids: Pids, run: Tasks, tasks: int) -> dict[str, Figures]:
    """Return what each program did: bytecodes and calls, each by function."""
    await run(WARM_UP)
    await asyncio.sleep(WAIT_S)
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    await asyncio.sleep(WAIT_S)
    await run(tasks)
    await asyncio.sleep(WAIT_S)
    found: dict[str, Figures] = {}
    for pid, program in pids.items():
        os.kill(pid, signal.SIGUSR2)
        for what, numbers in (await asyncio.to_thread(_written, pid)).items():
            found.setdefault(program, {}).setdefault(what, Counter()).update(numbers)
    return found


def _written(pid: int) -> Figures:
    """Wait for the counts of a process, and return them."""
    file, until = Path(os.environ["COUNTS_INTO"], f"{pid}.json"), time.monotonic() + LIMIT_S
    while not file.exists():
        if time.monotonic() > until:
            raise SystemExit(f"process {pid} has not written what it counted")
        time.sleep(0.01)
    return dict(json.loads(file.read_text("utf-8")))


async def measure(options: argparse.Namespace) -> list[Figures]:
    rows: list[Figures] = []
    for kind, task in KINDS.items():
        for way, start in ((OURS, ours(kind)), (FLOOR, floor(kind, options.tasks))):
            progress(f"a {task}: {way}")
            async with start as (pids, run):
                found = await counted(pids, run, options.tasks)
            rows += [_row(task, way, program, figures, options.tasks) for program, figures in found.items()]
    return rows


def _row(task: str, way: str, program: str, figures: Figures, tasks: int) -> Figures:
    """Return what a program does for one task; a function counts as one of it if it is called for most tasks."""
    calls: Counter[str] = figures["calls"]
    bytecodes: Counter[str] = figures["bytecodes"]
    return {
        "task": task,
        "way": way,
        "program": program,
        "functions": sum(number >= tasks / 2 for number in calls.values()),
        "calls": sum(calls.values()) / tasks,
        "bytecodes": sum(bytecodes.values()) / tasks,
        "dearest": {name: number / tasks for name, number in bytecodes.most_common(100)},
    }


def show(rows: list[Figures], dearest: int) -> str:
    """One table, and the functions that run most bytecodes."""
    whole = [_sum(rows, task, way) for task in KINDS.values() for way in (OURS, FLOOR)]
    lines = [
        [row["task"], row["way"], row["program"], *(count(row[what]) for what in ("functions", "calls", "bytecodes"))]
        for row in sorted([*rows, *whole], key=lambda row: (row["task"], row["way"]))
    ]
    text = [table(["task", "way", "program", "functions", "calls", "bytecodes"], lines)]
    for row in rows if dearest else []:
        text += ["", f"a {row['task']}, {row['way']}, {row['program']}:"]
        text += [f"{number:9,.0f}  {_short(name)}" for name, number in [*row["dearest"].items()][:dearest]]
    return "\n".join(text)


def _sum(rows: list[Figures], task: str, way: str) -> Figures:
    these = [row for row in rows if (row["task"], row["way"]) == (task, way)]
    sums = {what: sum(row[what] for row in these) for what in ("functions", "calls", "bytecodes")}
    return {"task": task, "way": way, "program": "all", **sums}


def _short(name: str) -> str:
    return name.removeprefix(f"{ROOT}/").removeprefix(f"{sysconfig.get_path('stdlib')}/")


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int, default=20)
    asking.add_argument("--functions", type=int, default=0, help="also so many of those that run most bytecodes")
    options = asking.parse_args()
    if "COUNTS_INTO" in os.environ:
        rows = asyncio.run(measure(options))
        answer(rows, show(rows, options.functions), options.json)
        return
    with tempfile.TemporaryDirectory(prefix="loopline-bench-") as folder:
        own = {**os.environ, "COUNTS_INTO": folder, "PYTHONPATH": f"{COUNTING}:{ROOT}"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=own, check=False).returncode)


if __name__ == "__main__":
    main()
