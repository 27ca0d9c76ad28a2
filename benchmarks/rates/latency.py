"""Latency of single tasks, one after the other: from submission until the result is known.

A process with a line of stdout, submitted and awaited by Loopline's asynchronous client; a function, by its Executor.
Nothing else is going on. In every round the disk is measured too: F is the time of an fsync. A durable
acknowledgement needs two, one for the submission and one for the result, so a function may take 2 F + 1 ms here.

    python benchmarks/rates/latency.py [--full] [--tasks 100] [--rounds 3] [--no-peers] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness import limits, peers
from benchmarks.harness.grid import Figures, Grid, Run, Way, fsync_s, grid, in_turns
from benchmarks.harness.postgres import postgres_grid
from benchmarks.harness.tables import answer, milliseconds, parser, progress, quantile, table
from loopline.client import AsyncClient
from loopline.executor import Executor
from loopline_shared.spec import JobSpec

OURS = "Loopline"
DISK = "fsync of a page (F)"
WARM_UP = 20
LINE = "a line of stdout"
KINDS = {peers.ONE_PROCESS: "process", peers.ONE_CALL: "function"}


def increment(number: int) -> int:
    return number + 1


async def one_process(client: AsyncClient) -> None:
    results = await client.run(JobSpec(command=["/bin/echo", LINE]))
    if [result.stdout for result in results] != [LINE + "\n"]:
        raise SystemExit(f"a result is not as it should be: {results}")


async def each_timed(work: Callable[[], Awaitable[object]], tasks: int) -> Figures:
    each_s = []
    for _ in range(tasks):
        begin = time.perf_counter()
        await work()
        each_s.append(time.perf_counter() - begin)
    return {"each_s": each_s}


MadeGrid = Callable[..., AbstractAsyncContextManager[Grid]]


@asynccontextmanager
async def processes(tasks: int, made: MadeGrid = grid) -> AsyncIterator[Run]:
    async with made(slots=2) as one, one.client() as client:
        await each_timed(lambda: one_process(client), WARM_UP)
        yield lambda: each_timed(lambda: one_process(client), tasks)


@asynccontextmanager
async def functions(tasks: int, made: MadeGrid = grid) -> AsyncIterator[Run]:
    """The Executor is for ordinary code, so it is used from a thread that does nothing else."""
    async with made(slots=2) as one:
        executor = Executor(one.url, one.token())

        def call(times: int) -> Figures:
            each_s = []
            for number in range(times):
                begin = time.perf_counter()
                if executor.submit(increment, number).result(60) != number + 1:
                    raise SystemExit("a value is not as it should be")
                each_s.append(time.perf_counter() - begin)
            return {"each_s": each_s}

        try:
            await asyncio.to_thread(call, WARM_UP)
            yield lambda: asyncio.to_thread(call, tasks)
        finally:
            await asyncio.to_thread(executor.shutdown)


@asynccontextmanager
async def disk() -> AsyncIterator[Run]:
    with tempfile.TemporaryDirectory(prefix="loopline-bench-") as folder:

        async def run() -> Figures:
            return {"each_s": fsync_s(Path(folder))}

        yield run


def ways(options: argparse.Namespace, kind: str) -> list[Way]:
    ours = processes if kind == peers.ONE_PROCESS else functions
    found = [
        Way(OURS, "yes", lambda: ours(options.tasks)),
        limits.floor(kind, options.tasks),
        Way(DISK, "-", disk),
    ]
    if options.no_peers:
        return found
    postgres = Way(f"{OURS}, PostgreSQL", "yes", lambda: ours(options.tasks, postgres_grid))
    return [*found, postgres, *peers.ways(kind, options.tasks)]


async def measure(options: argparse.Namespace) -> list[Figures]:
    rows: list[Figures] = []
    for kind, what in KINDS.items():
        these = ways(options, kind)
        found = await in_turns(these, options.rounds, progress)
        rows += [_row(what, way, found[way.name]) for way in these if way.name in found]
    return rows


def _row(what: str, way: Way, figures: list[Figures]) -> Figures:
    each_s = [second for round_ in figures for second in round_["each_s"]]
    of_rounds = [quantile(round_["each_s"], 0.5) for round_ in figures]
    return {
        "task": what,
        "way": way.name,
        "durable": way.durable,
        "tasks": len(each_s),
        "p50_s": quantile(each_s, 0.5),
        "p99_s": quantile(each_s, 0.99),
        "p50_best_round_s": min(of_rounds),
    }


def show(rows: list[Figures]) -> str:
    lines = [
        [row["way"], row["task"], row["durable"], row["tasks"], *map(milliseconds, (row["p50_s"], row["p99_s"]))]
        for row in rows
    ]
    head = ["way", "task", "durable", "tasks", "p50 ms", "p99 ms"]
    return "\n".join([table(head, lines), "", *_budget(rows), *peers.hint()])


def _budget(rows: list[Figures]) -> list[str]:
    """Return the time that both kinds take beyond the floor, and beyond the disk's part of it."""
    said = []
    for kind in KINDS.values():
        p50_s = {row["way"]: row["p50_s"] for row in rows if row["task"] == kind}
        if not {OURS, limits.FLOOR, DISK} <= p50_s.keys():
            continue
        ours_s, floor_s, allowed_s = p50_s[OURS], p50_s[limits.FLOOR], 2 * p50_s[DISK] + 0.001
        said.append(
            f"A {kind}: {ours_s / floor_s:.1f} times the floor's p50; 2 F + 1 ms is {milliseconds(allowed_s)} ms, "
            f"of which the floor takes {floor_s / allowed_s:.0%}."
        )
    return said


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int, help="in each round: 100; in the full form 2,000")
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--no-peers", action="store_true")
    options = asking.parse_args()
    options.tasks = options.tasks or (2000 if options.full else 100)
    rows = asyncio.run(measure(options))
    answer(rows, show(rows), options.json)


if __name__ == "__main__":
    main()
