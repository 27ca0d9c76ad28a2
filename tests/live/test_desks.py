"""The owner's share of the computer in each layout that desktops use, and the time until tasks are frozen.

These are measurements for an otherwise idle computer; the long run prints the results (`-s` shows them).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopline_worker.owner.owner_monitor import quantile
from tests.live.conftest import running
from tests.live.desks import CORES, LAYOUTS, cpu_s, enter, is_frozen, layout, missing, owners_programs
from tests.live.grid import Grid, wait_for
from tests.worker.presence.witnesses import move_mouse, x_server

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900), pytest.mark.skipif(bool(missing()), reason=missing())]
LEAST_SHARE = 0.97
MOST_S = 0.3
"""99th percentile of the time from an owner's input until no task runs."""
ROUNDS = 30
KEYS_HIDDEN_S = 8
"""Linux shows input at a terminal only with a resolution of 8 s; tasks resume sooner in these tests."""
KERNEL_TICK_S = 0.02
"""Upper bound for the lag of the kernel's clock of file times."""
MEASURED_S = 10.0
DESK = {"LOOPLINE_IDLE_S": "1", "LOOPLINE_RESERVE_MEMORY_BYTES": "0", "LOOPLINE_ON_BATTERY": "1"}
HOG = f"exec {sys.executable} -I -S -c 'while True: pass'"
NICE = 10
"""Nice value of an installed unit."""


@pytest.mark.parametrize("policy", ["when-idle", "spare"])
@pytest.mark.parametrize("name", LAYOUTS)
async def test_owners_programs_get_nearly_all_cpu_time(tmp_path: Path, name: str, policy: str) -> None:
    """The owner's programs and tasks both use all cores from the start, without any input."""
    with x_server() as display, layout(name) as (ours, owners):
        async with running(tmp_path) as grid:
            tasks = await _tasks_run(grid, ours, DESK | display | {"LOOPLINE_POLICY": policy})
            before = cpu_s(tasks)
            with owners_programs(owners) as hogs:
                began = time.monotonic()
                owner_before = cpu_s(hogs)

                async def is_over() -> bool:
                    return time.monotonic() - began > MEASURED_S

                await wait_for("the measurement", is_over)
                owner_s, tasks_s = cpu_s(hogs) - owner_before, cpu_s(tasks) - before
            share = owner_s / (owner_s + tasks_s)
            print(f"{name}, {policy}: {share:.1%} of {owner_s + tasks_s:.1f} s; load {os.getloadavg()[0]:.1f}")
            await _cancel_all(grid)
            assert share >= LEAST_SHARE


@pytest.mark.parametrize("kind", ["mouse", "key", "terminal"])
@pytest.mark.parametrize("is_busy", [True, False], ids=["busy owner", "idle owner"])
async def test_input_freezes_all_tasks_in_time(tmp_path: Path, kind: str, is_busy: bool) -> None:
    """The worker runs like a user's unit; a busy owner's programs use all cores in their own session."""
    desk, steps_s = (
        DESK | {"LOOPLINE_YIELD_TO_LOAD": "0", "LOOPLINE_GRACE_S": "3600"},
        KEYS_HIDDEN_S * (kind == "terminal"),
    )
    with x_server() as display, layout("session scope") as (ours, owners), _inputs(display) as inputs:
        async with running(tmp_path) as grid:
            tasks = await _tasks_run(grid, ours, desk | display)
            if is_busy:
                with owners_programs(owners):
                    took = [await _freeze(tasks, inputs[kind], steps_s) for _ in range(ROUNDS)]
            else:
                took = [await _freeze(tasks, inputs[kind], steps_s) for _ in range(ROUNDS)]
            took.sort()
            shown = ", ".join(f"p{part * 100:.0f} {quantile(took, part):.3f}" for part in (0.5, 0.9, 0.99))
            print(f"{kind}, {'busy' if is_busy else 'idle'}: {shown} s; load {os.getloadavg()[0]:.1f}")
            await _cancel_all(grid)
            assert quantile(took, 0.99) < MOST_S


async def test_tasks_are_frozen_when_the_x_server_dies(tmp_path: Path) -> None:
    """A killed X server no longer reports input, which counts as the owner's return."""
    desk = DESK | {"LOOPLINE_YIELD_TO_LOAD": "0", "LOOPLINE_GRACE_S": "3600"}
    async with running(tmp_path) as grid:
        with x_server() as display:
            tasks = await _tasks_run(grid, None, desk | display)

        async def are_frozen() -> bool:
            return all(map(is_frozen, tasks))

        await wait_for("the tasks to stand still", are_frozen, seconds=20)
        await _cancel_all(grid)


async def _tasks_run(grid: Grid, group: Path | None, settings: dict[str, str]) -> list[int]:
    """Start a worker in a group, with one busy task per core; return their processes."""
    await grid.start_worker("desk", slots=CORES, owner=settings)
    pid = grid.workers["desk"].pid
    enter(group, pid)
    if group:
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    await grid.submit(HOG, tasks=CORES, max_replicas=1)

    async def all_run() -> list[int] | None:
        found = [process.pid for process in grid.processes()]
        return found if len(found) == CORES and all(cpu_s([pid]) > 0.2 for pid in found) else None

    tasks = await wait_for("tasks to compute", all_run, seconds=300)
    if group:
        in_it = subprocess.run(["cat", f"/proc/{tasks[0]}/cgroup"], capture_output=True, text=True, check=True)
        assert str(group).rpartition("loopline-desks")[2] in in_it.stdout, "tasks are in the worker's group"
    return tasks


async def _freeze(tasks: list[int], act: Callable[[], object], steps_s: int) -> float:
    """Return the seconds from just before an input until all tasks are frozen.

    ``steps_s``: the resolution of the clock that shows inputs.
    """
    step = time.time() // steps_s if steps_s else 0.0

    async def run() -> bool:
        return not any(map(is_frozen, tasks))

    await wait_for("tasks to go on", run, seconds=300)
    last = time.monotonic() + random.uniform(0.2, 0.6)  # out of phase with the worker's polling

    async def is_time() -> bool:
        return time.monotonic() > last and (not steps_s or (time.time() - KERNEL_TICK_S) // steps_s > step)

    await wait_for("a moment", is_time)
    began = time.monotonic()
    act()
    while not all(map(is_frozen, tasks)):
        assert time.monotonic() - began < 30, "the tasks resume"
        time.sleep(0.002)  # polls
    return time.monotonic() - began


@contextmanager
def _inputs(display: dict[str, str]) -> Iterator[dict[str, Callable[[], object]]]:
    """Yield the inputs of a person by name; a reader consumes the terminal's input."""
    person, program = os.openpty()
    reader = subprocess.Popen(["cat"], stdin=program, stdout=subprocess.DEVNULL)
    moves = iter(range(10**6))
    key = ["xdotool", "key", "a"]
    try:
        yield {
            "mouse": lambda: move_mouse(display, next(moves) % 2 * 100 + 50),
            "key": lambda: subprocess.run(key, env=os.environ | display, check=True),
            "terminal": lambda: os.write(person, b"x\n"),
        }
    finally:
        reader.kill()
        reader.wait()
        os.close(person)
        os.close(program)


async def _cancel_all(grid: Grid) -> None:
    [job] = [one.id async for one in grid.client().jobs()]
    await grid.client().cancel(job)
    await grid.no_processes()
