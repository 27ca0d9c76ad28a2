"""Resident memory of client, master and worker while ``submit(f, i).result()`` runs in a loop.

Memory grows until everything with a limit is full: the master's page cache of SQLite (16 MiB, after some 4,000
calls), its change feed (10,000 names), and in all three the JSON decoder's cache of short strings (16,384, after some
20,000 calls). The first removal of unused files, five minutes after the start, takes 8 MiB once. ``grows`` is from
half of the calls on.

    python benchmarks/rates/call_memory.py [--full] [--calls N] [--every N] [--json]
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import loopline
from benchmarks.harness.grid import Figures, Grid, grid, memory_bytes, tree_memory_bytes
from benchmarks.harness.tables import answer, count, parser, progress, table

SLOTS = 2
ROLES = ("client", "master", "agent", "interpreters")


def call(number: int) -> int:
    return number


def memory(one: Grid) -> Figures:
    """Return the bytes of each role; ``interpreters``: all processes below the agent."""
    worker = one.programs["w1"].pid
    agent = memory_bytes(worker)
    return {
        "client": memory_bytes(os.getpid()),
        "master": tree_memory_bytes(one.programs["master"].pid),
        "agent": agent,
        "interpreters": tree_memory_bytes(worker) - agent,
    }


def measure(one: Grid, calls: int, every: int) -> list[Figures]:
    """Return the memory after each ``every`` calls."""
    found = []
    with loopline.Executor(one.url, one.token()) as executor:
        for number in range(1, calls + 1):
            if executor.submit(call, number).result(60) != number:
                raise SystemExit(f"call {number} has a wrong value")
            if number % every == 0:
                found.append({"calls": number, **memory(one)})
                progress(", ".join(_row(found[-1])))
    return found


def _row(figures: Figures) -> list[str]:
    return [count(figures["calls"]), *(f"{figures[role] / 2**20:.1f}" for role in ROLES)]


def report(found: list[Figures]) -> str:
    middle, last = found[(len(found) - 1) // 2], found[-1]
    grows = ["grows", *(f"{(last[role] - middle[role]) / 2**20:+.1f}" for role in ROLES)]
    return table(["calls", *(f"{role}, MiB" for role in ROLES)], [*map(_row, found), grows])


async def run(options: Any) -> list[Figures]:
    async with grid(SLOTS) as one:
        return await asyncio.to_thread(measure, one, options.calls, options.every)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--calls", type=int, help="100,000 with --full, else 2,000")
    asking.add_argument("--every", type=int, help="calls between two rows; a twentieth of all")
    options = asking.parse_args()
    options.calls = options.calls or (100_000 if options.full else 2_000)
    options.every = options.every or max(1, options.calls // 20)
    found = asyncio.run(run(options))
    answer(found, report(found), options.json)


if __name__ == "__main__":
    main()
