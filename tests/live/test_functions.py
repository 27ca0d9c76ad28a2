"""Functions on a real grid: the Executor, maps that outlive their program, and the interpreters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

import loopline
from loopline.functions.calls import LONGEST_INLINE_BYTES
from loopline_shared.model import INLINE_LIMIT_BYTES, MAX_INLINE_BYTES, JobState, Order
from tests.live.grid import ROOT, Grid, wait_for

SUBMITS = """
import sys, time
import loopline

def slow_square(x):
    import pathlib, time
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.02)
    return x * x, b"x" * 10_000

executor = loopline.Executor({url!r}, {token!r}, name="squares")
values = executor.map(slow_square, range(12))
while not executor.jobs:
    time.sleep(0.01)
print(executor.jobs[0], flush=True)
print(list(values))
"""

ATTACHES = """
import json
import loopline

executor = loopline.Executor({url!r}, {token!r})
print(json.dumps([[future.result()[0], len(future.result()[1])] for future in executor.attach({job})]))
with loopline.Client({url!r}, {token!r}) as client:
    print(json.dumps([value[0] for value in client.job({job}).values()]))
executor.shutdown()
"""


def token(grid: Grid) -> str:
    return (grid.data_dir / "tokens" / "admin").read_text().strip()


@asynccontextmanager
async def executor(grid: Grid, **options: Any) -> AsyncIterator[loopline.Executor]:
    made = await asyncio.to_thread(loopline.Executor, grid.url, token(grid), **options)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.shutdown, cancel_futures=True)


async def result(future: Any) -> Any:
    return await asyncio.wait_for(asyncio.wrap_future(future), 60)


async def program(text: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


def wait_for_file(path: str) -> str:
    import pathlib
    import time

    pathlib.Path(f"{path}.{time.monotonic_ns()}").touch()
    while not pathlib.Path(path).exists():
        time.sleep(0.02)  # on the worker, until the test creates the file
    return path


async def test_calls_of_executors_run_concurrently_under_order_hold(grid: Grid) -> None:
    """Each call is a job of one task, and none waits for another of this or another program's executor."""
    await grid.start_worker("ant", slots=4)
    gate = grid.folder / "gate"
    async with executor(grid, size=10.0) as one, executor(grid, size=10.0) as other:
        waiting = [one.submit(wait_for_file, str(gate)) for _ in range(3)]

        async def all_run() -> bool:
            return len(list(grid.folder.glob("gate.*"))) == 3

        await wait_for("three calls to run at a time", all_run)
        assert await result(other.submit(abs, -1)) == 1
        assert await asyncio.to_thread(lambda: list(other.map(pow, range(3), [2] * 3))) == [0, 1, 4]
        gate.touch()
        assert [await result(future) for future in waiting] == [str(gate)] * 3
    details = [await grid.job(job.id) async for job in grid.client().jobs()]
    assert {job.order for job in details} == {Order.NONE}
    assert len({job.spec.session for job in details}) == 2
    report = await grid.client().passing()
    assert (report.completions, report.passings, report.excused) == (0, 0, {}), "sessions are not audited"


async def test_executor_with_order_hold_submits_separate_jobs(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    async with executor(grid, order="hold") as pool:
        assert await result(pool.submit(abs, -1)) == 1
        assert await asyncio.to_thread(lambda: list(pool.map(abs, [-2, -3]))) == [2, 3]
    details = [await grid.job(job.id) async for job in grid.client().jobs()]
    assert {(job.order, job.spec.session) for job in details} == {(Order.HOLD, None), (Order.DELIVER, None)}


async def test_map_outlives_its_program_and_the_master(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    await grid.connected("ant")
    gate = grid.gate()
    names = {"gate": str(gate.file), "url": grid.url, "token": token(grid)}
    first = await program(SUBMITS.format(**names))
    assert first.stdout
    job = int(await asyncio.wait_for(first.stdout.readline(), 60))
    await grid.attempts_when("calls to run", job, lambda all_: any(a.started_at for a in all_))
    first.send_signal(signal.SIGKILL)
    await asyncio.gather(first.wait(), grid.kill_master())
    gate.open()
    await grid.start_master()
    second = await program(ATTACHES.format(job=job, **names))
    output, _ = await asyncio.wait_for(second.communicate(), 60)
    values, again = [json.loads(line) for line in output.splitlines()]
    assert values == [[x * x, 10_000] for x in range(12)]
    assert again == [x * x for x in range(12)]
    await grid.ended(job)


async def test_arguments_and_values_of_any_size_are_returned(grid: Grid) -> None:
    """Sizes around powers of two and around every limit on their way."""
    await grid.start_worker("ant", slots=2)
    borders = {LONGEST_INLINE_BYTES, INLINE_LIMIT_BYTES, MAX_INLINE_BYTES, *(2**n for n in range(9, 19))}
    sizes = [border - overhead + by for border in sorted(borders) for overhead in (0, 30) for by in range(-20, 20, 7)]
    contents = [bytes([size % 256]) * size for size in sizes]
    async with executor(grid) as one:
        assert await result(one.submit(bytes, b"")) == b"", "the next call is sent at once"
        for content in contents[::6]:
            assert await result(one.submit(bytes, content)) == content
        for chunk in (1, 4):
            assert await asyncio.to_thread(lambda by=chunk: list(one.map(bytes, contents, chunksize=by))) == contents


async def test_results_of_calls_are_returned(grid: Grid) -> None:
    """Values, exceptions with tracebacks, crashes; separate output for each call; separate sessions."""
    await grid.start_worker("ant")

    def fail(seed: int) -> None:
        raise ValueError(f"bad seed {seed}")

    def speak(word: str) -> int:
        print(word)
        return os.getpid()

    async with executor(grid) as one, executor(grid) as other:
        pids = await asyncio.to_thread(lambda: list(one.map(speak, "abc")))
        assert len(set(pids)) == 1, "a session keeps its interpreter"
        assert await result(other.submit(os.getpid)) not in pids
        stdout = {r.number: r.stdout async for r in grid.client().results(one.jobs[0])}
        assert stdout == {1: "a\n", 2: "b\n", 3: "c\n"}
        with pytest.raises(ValueError, match="bad seed 3") as caught:
            await result(one.submit(fail, 3))
        assert 'raise ValueError(f"bad seed {seed}")' in str(caught.value.__cause__)
        with pytest.raises(loopline.CallError, match="exit code 3"):
            await result(one.submit(lambda: os._exit(3)))
        assert await result(one.submit(pow, 2, 5)) == 32, "the next call gets a fresh interpreter"
        squares = await asyncio.to_thread(lambda: list(one.map(lambda x: x * x, range(3000))))
        assert squares == [x * x for x in range(3000)], "several of many calls share a task"
        crashing = one.map(lambda x: os._exit(4) if x == 2 else x, range(4), chunksize=4)
        assert await asyncio.to_thread(lambda: [next(crashing), next(crashing)]) == [0, 1]
        with pytest.raises(loopline.CallError, match="exit code 4"):
            await asyncio.to_thread(next, crashing)
        after = await asyncio.to_thread(one.attach, one.jobs[-1])
        assert [await result(future) for future in after if future is not after[2]] == [0, 1, 3]
    await grid.stop_worker("ant")


async def test_cancelled_future_kills_its_process_tree(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)

    def hang(_: int) -> None:
        import subprocess
        import time

        subprocess.Popen(["setsid", "sleep", "1000"])
        time.sleep(1000)  # the call under test

    async with executor(grid) as grid_executor:
        futures = [grid_executor.submit(hang, number) for number in range(3)]
        jobs = {(await submitted(future)).job for future in futures}  # one job or several

        async def two_run() -> bool:
            states = [attempt.state for job in jobs for attempt in await grid.attempts(job)]
            return states.count("running") == 2 and len(sleeping(grid)) == 2

        await wait_for("two to run", two_run)
        assert all(future.cancel() for future in futures)
        for job in jobs:
            assert (await grid.ended(job)).state is JobState.CANCELLED
        await grid.no_processes()


async def test_losing_replica_dies_with_its_interpreter(grid: Grid) -> None:
    """One of two replicas of a call can end; the other is killed during its call."""
    gate = grid.gate()

    def win_on_bee(gate: str) -> str:
        import os
        import time
        from pathlib import Path

        while os.environ["LOOPLINE_WORKER"] != "bee" or not Path(gate).exists():
            time.sleep(0.02)  # the call under test
        return os.environ["LOOPLINE_WORKER"]

    await grid.start_worker("ant")
    async with executor(grid, max_replicas=2) as grid_executor:
        future = grid_executor.submit(win_on_bee, str(gate.file))
        job = (await submitted(future)).job
        await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
        await wait_for("its interpreter", lambda: there(interpreters(grid, "ant")))
        await grid.start_worker("bee")
        await grid.attempts_when("its replica", job, lambda all_: sum(a.state == "running" for a in all_) == 2)
        gate.open()
        assert await result(future) == "bee"

        async def is_gone() -> bool:
            return not interpreters(grid, "ant")

        await wait_for("the loser to be killed", is_gone)
        await grid.stop_worker("bee")


@pytest.mark.campaign
async def test_sweep_of_the_simulator_runs_on_the_grid(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    small = ["no-passing", "--seeds", "2", "--jobs", "2", "--tasks", "4", "--pcs", "4", "--intervals", "50", "--json"]
    there, here = await asyncio.gather(simulate(grid, *small, "--grid"), simulate(grid, *small, "--processes", "1"))
    assert there == here
    assert {(job.name, job.state) async for job in grid.client().jobs()} == {("simulate", JobState.SUCCEEDED)}
    await grid.stop_worker("ant")


async def simulate(grid: Grid, *arguments: str) -> str:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline_simulator", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token(grid)},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(running.communicate(), 100)
    assert running.returncode == 0
    return output.decode()


async def submitted(future: Any) -> Any:
    async def task() -> Any:
        return future.task

    return await wait_for("the call to be submitted", task)


async def there(things: list[Any]) -> bool:
    return bool(things)


def sleeping(grid: Grid) -> list[psutil.Process]:
    return [process for process in grid.processes() if named(process, "sleep")]


def interpreters(grid: Grid, worker: str) -> list[psutil.Process]:
    return [process for process in grid.processes() if named(process, f"/{worker}/scratch/")]


def named(process: psutil.Process, part: str) -> bool:
    try:
        return part in " ".join(process.cmdline())
    except psutil.Error:
        return False
