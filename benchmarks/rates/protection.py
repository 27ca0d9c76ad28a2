"""Cost of protection: the same tasks with neither TLS nor the sandbox, with each of them, and with both.

Four questions to each, in turns, on two slots: processes a second with a line of stdout kept, durable calls a second
(``Executor.map`` with ``chunksize=1``), and the median time of one process and of one call alone. The last column is
the worst of the four against a grid without either: 1.15 takes 15 % more of each task's time.

    python benchmarks/rates/protection.py [--full] [--tasks 1000] [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import loopline
from benchmarks.harness.grid import Figures, Grid, Run, Way, grid, in_turns
from benchmarks.harness.tables import answer, count, median, milliseconds, parser, progress, quantile, table
from benchmarks.rates import functions, latency, processes

PLAIN, BOTH = "neither", "TLS and the sandbox"
WAYS = {PLAIN: (False, False), "TLS": (True, False), "the sandbox": (False, True), BOTH: (True, True)}
"""Whether each has TLS and the sandbox."""
ALONE = 100


async def all_questions(one: Grid, tasks: int) -> Figures:
    """Return the seconds that a task takes in each of the questions."""
    stream = await processes.all_results(one, tasks, silent=False)
    async with one.client() as client:
        alone = await latency.each_timed(lambda: latency.one_process(client), ALONE)
    calls, call = await asyncio.to_thread(_calls, one, tasks)
    return {
        "process_s": stream["seconds"] / tasks,
        "call_s": calls["seconds"] / tasks,
        "process_alone_s": quantile(alone["each_s"], 0.5),
        "call_alone_s": quantile(call["seconds"], 0.5),
    }


def _calls(one: Grid, tasks: int) -> tuple[Figures, Figures]:
    """Measure calls in a stream, and calls alone."""
    if ca := one.ca_file():
        os.environ["LOOPLINE_CA_FILE"] = str(ca)
    try:
        with loopline.Executor(one.url, one.token()) as executor:
            way = functions.Ours(one, executor)
            list(executor.map(functions.call, range(functions.WARM_UP)))
            return functions.many(way, tasks, 1), functions.in_sequence(way, ALONE)
    finally:
        os.environ.pop("LOOPLINE_CA_FILE", None)


def way(name: str, tasks: int) -> Way:
    """Return one way to protect a grid, warmed up."""
    tls, sandbox = WAYS[name]

    @asynccontextmanager
    async def start() -> AsyncIterator[Run]:
        worker = ("--sandbox", "auto" if sandbox else "off")
        async with grid(2, "--tls", "on" if tls else "off", worker_flags=worker) as one:
            await processes.all_results(one, processes.WARM_UP, silent=False)
            yield lambda: all_questions(one, tasks)

    return Way(name, "yes", start)


async def measure(options: argparse.Namespace) -> dict[str, Figures]:
    """Return the median of each question for each way."""
    found = await in_turns([way(name, options.tasks) for name in WAYS], options.rounds, progress)
    return {
        name: {question: median(each[question] for each in rounds) for question in rounds[0]}
        for name, rounds in found.items()
    }


def show(found: dict[str, Figures]) -> str:
    """Return the table; times of the grid without protection are the measure."""
    plain = found[PLAIN]
    lines = [
        [name, count(1 / one["process_s"]), count(1 / one["call_s"]), milliseconds(one["process_alone_s"]),
         milliseconds(one["call_alone_s"]), f"{max(one[each] / plain[each] for each in plain):.2f}"]
        for name, one in found.items()
    ]  # fmt: skip
    return table(["with", "processes/s", "calls/s", "one process ms", "one call ms", "times neither"], lines)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int, help="1,000; in the full form 5,000")
    asking.add_argument("--rounds", type=int, default=3)
    options = asking.parse_args()
    options.tasks = options.tasks or (5_000 if options.full else 1_000)
    found = asyncio.run(measure(options))
    answer(found, show(found), options.json)


if __name__ == "__main__":
    main()
