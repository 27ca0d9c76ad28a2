"""The cost of the order guarantee for small jobs of honest users: the same programs under the default and under none.

Each case runs twice on a worker of four slots: in the second run the sizes of its jobs are predicted. All tasks
sleep, so that a busy computer matters little.

    python benchmarks/rates/order_cost.py [--full] [--rounds 1] [--json]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import joblib

import loopline
import loopline.joblib
from benchmarks.harness.grid import Grid, grid
from benchmarks.harness.tables import answer, median, parser, progress, table

SLOTS, MOST = 4, 1.3
"""A case may take this many times as long as under order none."""


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    run: int
    none_s: float
    default_s: float

    @property
    def times(self) -> float:
        return self.default_s / self.none_s


def nap(number: int) -> int:
    time.sleep(1.0)
    return number


def steady(one: Grid) -> None:
    """Keep four calls in flight."""
    with loopline.Executor(one.url, one.token()) as executor:
        left = iter(range(16))
        in_flight: set[Future[int]] = {executor.submit(nap, next(left)) for _ in range(SLOTS)}
        while in_flight:
            done, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
            in_flight |= {executor.submit(nap, number) for _, number in zip(done, left, strict=False)}


def at_once(one: Grid) -> None:
    with loopline.Executor(one.url, one.token()) as executor:
        list(executor.map(nap, range(16), chunksize=1))


def by_joblib(one: Grid) -> None:
    loopline.joblib.register()
    with joblib.parallel_config("loopline", n_jobs=SLOTS, master=one.url, token=one.token()):
        joblib.Parallel(batch_size=1)(joblib.delayed(nap)(number) for number in range(24))


def by_dask(one: Grid) -> None:
    dask: Any = import_module("dask")
    graph = [dask.delayed(nap, pure=False)(number) for number in range(24)]
    with loopline.Executor(one.url, one.token()) as executor:
        dask.compute(*graph, scheduler=executor)


def beside_a_long_call(one: Grid) -> None:
    """A call from a second program, while a call of ten seconds runs: its time alone is measured."""
    with loopline.Executor(one.url, one.token()) as other, loopline.Executor(one.url, one.token()) as executor:
        long = other.submit(time.sleep, 10.0)
        executor.submit(abs, -1).result()
        long.cancel()


def one_after_another(one: Grid) -> None:
    """Four threads that run a command again and again, as loops over `Client.run` do."""

    def loop() -> None:
        with loopline.Client(one.url, one.token()) as client:
            for _ in range(4):
                client.submit(["sleep", "1"]).wait()

    threads = [threading.Thread(target=loop) for _ in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def from_the_shell(one: Grid) -> None:
    """A loop of `loopline submit`, four at a time."""
    command = [sys.executable, "-m", "loopline", "submit", "--master", one.url, "--token", one.token(), "--wait"]
    left = [subprocess.Popen([*command, "--", "sleep", "2"], stdout=subprocess.DEVNULL) for _ in range(SLOTS)]
    assert not any(process.wait() for process in left)


def behind_an_endless_job(one: Grid) -> None:
    """A lone job without a size takes one of four slots for ever; three others run.

    Its name is its own: with earlier short runs of its program it would have a small predicted size, and hold others
    until it is overdrawn.
    """
    with loopline.Client(one.url, one.token()) as client:
        endless = client.submit(["sleep", "100000"], name="endless")
        jobs = [client.submit(["sleep", "2"], name=f"rule{number}") for number in range(3)]
        for job in jobs:
            job.wait()
        endless.cancel()


CASES: dict[str, Callable[[Grid], None]] = {
    "16 calls of 1 s, four in flight": steady,
    "16 calls of 1 s by map": at_once,
    "24 calls of 1 s by joblib": by_joblib,
    "24 tasks of 1 s by Dask": by_dask,
    "abs(-1) beside a call of 10 s": beside_a_long_call,
    "4 loops of 4 jobs of 1 s": one_after_another,
    "4 x loopline submit of 2 s": from_the_shell,
    "3 jobs of 2 s beside an endless one": behind_an_endless_job,
}


async def seconds_of(order: str) -> dict[tuple[str, int], float]:
    """Return the time of each case by run."""
    found: dict[tuple[str, int], float] = {}
    async with grid(SLOTS, "--order", order) as one:
        await asyncio.to_thread(at_once, one)  # starts the interpreters
        for run in (1, 2):
            for case, body in CASES.items():
                began = time.perf_counter()
                await asyncio.to_thread(body, one)
                found[case, run] = time.perf_counter() - began
    return found


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--rounds", type=int, help="grids of each order, in turns; the median counts")
    options = asking.parse_args()
    times: dict[str, list[dict[tuple[str, int], float]]] = {"none": [], "hold": []}
    for number in range(options.rounds or (3 if options.full else 1)):
        for order in ("none", "hold") if number % 2 == 0 else ("hold", "none"):
            progress(f"round {number + 1}: order {order} ...")
            times[order].append(asyncio.run(seconds_of(order)))
    rows = [
        Row(case, run, *(median([one[case, run] for one in times[order]]) for order in ("none", "hold")))
        for case in CASES
        for run in (1, 2)
    ]
    head = ["case", "run", "order none, s", "default, s", "times", f"at most {MOST}"]
    cells = [
        [row.case, row.run, f"{row.none_s:.2f}", f"{row.default_s:.2f}", f"{row.times:.2f}", row.times <= MOST]
        for row in rows
    ]
    answer([asdict(row) for row in rows], table(head, cells), options.json)


if __name__ == "__main__":
    main()
