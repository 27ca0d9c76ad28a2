"""Delay until a returning owner has the computer: from their input until the tasks are frozen.

A real master, a real worker on two slots under a real X server without a screen, two tasks that do nothing but
compute. In each round this program moves the mouse, and watches from outside until the kernel lets neither task
compute any more: its control group is set to freeze, it is stopped, or a stop signal waits for it. That a task has
not computed for some time says nothing: the owner's programs may have all of the processor. This program has
real-time priority meanwhile, so that they do not delay it. The worker's own figures are printed too. Between two
rounds, tasks run again. Needs root, Xvfb, xdotool and libXtst.

    python benchmarks/worker/owner_return.py [--full] [--rounds 3] [--busy 2] [--json]

``--busy 2``: the owner has two programs that compute without a pause, beginning half a second before the input.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, milliseconds, parser, table
from loopline_worker.owner.owner_monitor import quantile
from tests.live.grid import Grid, wait_for
from tests.worker.presence.witnesses import x_server

OWNER = {"LOOPLINE_IDLE_S": "2", "LOOPLINE_RESERVE_MEMORY_BYTES": "0", "LOOPLINE_ON_BATTERY": "1"}
OWNER |= {"LOOPLINE_YIELD_TO_LOAD": "0", "LOOPLINE_GRACE_S": "3600"}
TASKS = 2
CONTROL_GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
LIMIT_S = 30.0
MOUSE_EVERY_S = 0.008
"""A USB mouse that moves sends an event 125 times a second."""
HOG = f"exec {sys.executable} -I -S -c 'while True: pass'"


async def measure(rounds: int, busy: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, x_server() as display:
        mouse = Mouse(display["DISPLAY"])
        grid = Grid(Path(folder))
        try:
            await grid.start_master("--report-every-s", "0.5")
            await grid.start_worker("desk", slots=TASKS, owner=OWNER | display)
            job = await grid.submit(HOG, tasks=TASKS)
            await grid.attempts_when("tasks to run", job, lambda all_: sum(bool(a.started_at) for a in all_) == TASKS)
            seen_s = [await one_round(grid, mouse, busy) for _ in range(rounds)]
            worker = await wait_for("the worker's figures", lambda: figures(grid))
            await grid.client().cancel(job)
            await grid.no_processes()
        finally:
            await grid.stop()
    seen_s.sort()
    names = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "max_s": 1.0}
    return {
        "rounds": rounds,
        "busy": busy,
        "input_to_frozen": {name: round(quantile(seen_s, part), 4) for name, part in names.items()},
        "as_the_worker_measured": worker,
    }


async def one_round(grid: Grid, mouse: Mouse, busy: int) -> float:
    """Seconds from the movement of the mouse until no task may compute."""
    hogs = await wait_for("tasks to compute", lambda: running(grid), seconds=300)
    with owners_programs(busy):
        await asyncio.sleep(0.5 + random.uniform(0, 0.2))  # not in step with the worker's looks
        with real_time():
            return stopped_after(mouse, hogs)


def stopped_after(mouse: Mouse, hogs: list[int]) -> float:
    """Move the mouse as a hand does, and return the seconds until these tasks may not compute any more."""
    began, moved = time.monotonic(), -math.inf
    while not all(is_stopped(pid) for pid in hogs):
        if (now := time.monotonic()) - began > LIMIT_S:
            raise TimeoutError(f"tasks {hogs} still compute {LIMIT_S:.0f} s after the input")
        if now - moved >= MOUSE_EVERY_S:
            mouse.move()
            moved = now
        time.sleep(0.0005)
    return time.monotonic() - began


class Mouse:
    """The mouse of an X server, moved by this process: a program started for it would wait for a busy processor."""

    def __init__(self, display: str) -> None:
        self._x11, self._xtest = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXtst.so.6")
        self._x11.XOpenDisplay.restype = ctypes.c_void_p
        self._server = ctypes.c_void_p(self._x11.XOpenDisplay(display.encode()))
        self._place = 50

    def move(self) -> None:
        self._place = (self._place + 1) % 600
        self._xtest.XTestFakeMotionEvent(self._server, -1, self._place, 7, 0)
        self._x11.XFlush(self._server)


@contextmanager
def owners_programs(count: int) -> Iterator[None]:
    """Programs that compute without a pause, at normal priority."""
    programs = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextmanager
def real_time() -> Iterator[None]:
    """Let no program but the kernel come before this process."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(50))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def is_stopped(pid: int) -> bool:
    """True once the kernel lets this process run no instruction of its own any more."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    if status["State"][0] == "T" or pending >> (signal.SIGSTOP - 1) & 1:
        return True
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    return group is not None and any(is_set_to_freeze(Path(f"{mount}{group}")) for mount in CONTROL_GROUPS)


def is_set_to_freeze(group: Path) -> bool:
    """True if this control group, or one around it, is set to freeze."""
    folders = (group, *group.parents)
    return any(file.read_text().strip() == "1" for file in (at / "cgroup.freeze" for at in folders) if file.exists())


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
    asking.add_argument("--busy", type=int, default=0, help="programs of the owner that compute without a pause")
    options = asking.parse_args()
    result = asyncio.run(measure(options.rounds or (30 if options.full else 3), options.busy))
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
