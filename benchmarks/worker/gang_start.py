"""Start skew of gangs: the time between the first and the last member's beginning, by the one clock of this computer.

Each member prints the time of its first instruction, so the start of its process is included. The yardstick is the
same number of processes started by one bare loop.

    python benchmarks/worker/gang_start.py [--nodes 8] [--gangs 40] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import Figures, grid
from benchmarks.harness.tables import answer, milliseconds, parser, quantile, table
from loopline.client import AsyncClient
from loopline_shared.model import TaskId
from loopline_shared.spec import JobSpec

COMMAND = ["date", "+%s.%N"]


async def one_gang(client: AsyncClient, nodes: int) -> float:
    """Return the seconds between the first and the last member's beginning."""
    job = (await client.submit(JobSpec(command=COMMAND, nodes=nodes))).id
    _ = [result async for result in client.results(job)]
    began = [float(await _printed(client, job, rank)) for rank in range(nodes)]
    return max(began) - min(began)


async def _printed(client: AsyncClient, job: int, rank: int) -> bytes:
    return b"".join([piece async for piece in client.output(TaskId(job, 1), rank=rank)])


def bare_loop(nodes: int) -> float:
    """Return the same for processes that are made one after the other by this one."""
    running = [subprocess.Popen(COMMAND, stdout=subprocess.PIPE) for _ in range(nodes)]
    began = [float(process.communicate()[0]) for process in running]
    return max(began) - min(began)


async def measure(options: argparse.Namespace) -> list[Figures]:
    names = [f"w{number}" for number in range(options.nodes)]
    async with grid(slots=1, workers=names) as one, one.client() as client:
        await one_gang(client, options.nodes)  # the zygotes are warm
        gangs = [await one_gang(client, options.nodes) for _ in range(options.gangs)]
    loops = [bare_loop(options.nodes) for _ in range(options.gangs)]
    return [_row("gang", options, gangs), _row("bare loop", options, loops)]


def _row(way: str, options: argparse.Namespace, each_s: list[float]) -> Figures:
    return {
        "way": way,
        "nodes": options.nodes,
        "times": len(each_s),
        "p50_s": quantile(each_s, 0.5),
        "p99_s": quantile(each_s, 0.99),
        "most_s": max(each_s),
    }


def show(rows: list[Figures]) -> str:
    lines = [
        [row["way"], row["nodes"], row["times"], *map(milliseconds, (row["p50_s"], row["p99_s"], row["most_s"]))]
        for row in rows
    ]
    return table(["way", "members", "times", "p50 ms", "p99 ms", "most ms"], lines)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--nodes", type=int, default=8)
    asking.add_argument("--gangs", type=int, help="40; in the full form 400")
    options = asking.parse_args()
    options.gangs = options.gangs or (400 if options.full else 40)
    rows = asyncio.run(measure(options))
    answer(rows, show(rows), options.json)


if __name__ == "__main__":
    main()
