"""Python calls per second, and the latency of one: a master and a worker with two slots and warm interpreters. Every
submission and every result is on disk before it is acknowledged.

    map                   Executor.map, with its own settings
    map, chunksize=1      each call a task of its own
    one after the other   submit(f, i).result(), again and again; beside it, F: one fsync of the master

Each stands beside ``concurrent.futures.ProcessPoolExecutor`` with two processes, in the same run, in turns; that
keeps nothing on disk. After them, in the same run, the floor and peers, which make each call a task of its own unless
their table says otherwise.

    python benchmarks/rates/functions.py [--full] [--calls N] [--single N] [--latency N] [--rounds 3] [--no-peers]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor as AnyExecutor
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import loopline
from benchmarks.harness import limits, peers
from benchmarks.harness.grid import Figures, Grid, fsync_s, grid, in_turns, tree_cpu_s, tree_memory_bytes
from benchmarks.harness.tables import answer, count, parser, progress, quantile, table

SLOTS = 2
WARM_UP = 50
POOL_CHUNK = 100


def call(number: int) -> int:
    return number


class Ours:
    """The grid's executor, and the usage of all its processes."""

    name, durable = "Loopline", "yes"

    def __init__(self, one: Grid, executor: loopline.Executor) -> None:
        self._grid = one
        self.executor: AnyExecutor = executor

    def map(self, calls: int, chunksize: int | None) -> Iterator[int]:
        return self.executor.map(call, range(calls), chunksize=chunksize)  # type: ignore[arg-type]

    def cpu_s(self) -> dict[str, float]:
        return self._grid.cpu_by_role()

    def memory_bytes(self) -> dict[str, int]:
        of = {name: tree_memory_bytes(program.pid) for name, program in self._grid.programs.items()}
        return {"client": _own_memory_bytes(), "master": of.pop("master"), "worker": sum(of.values())}


class Pool:
    """The standard library's."""

    name, durable = "ProcessPoolExecutor", "no"

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self.executor: AnyExecutor = executor

    def map(self, calls: int, chunksize: int | None) -> Iterator[int]:
        return self.executor.map(call, range(calls), chunksize=chunksize or POOL_CHUNK)

    def cpu_s(self) -> dict[str, float]:
        below = sum(map(tree_cpu_s, self.executor._processes))  # type: ignore[attr-defined,arg-type]
        return {"client": time.process_time(), "below": below}

    def memory_bytes(self) -> dict[str, int]:
        return {}


def many(way: Ours | Pool, calls: int, chunksize: int | None) -> Figures:
    """Return the time from the call of map to the last value, after checking all values."""
    before, memory, began = way.cpu_s(), way.memory_bytes(), time.perf_counter()
    right = sum(value == number for number, value in enumerate(way.map(calls, chunksize)))
    seconds = time.perf_counter() - began
    after = way.cpu_s()
    if right != calls:
        raise SystemExit(f"{way.name}: only {right} of {calls} values are right")
    used = {role: after[role] - s for role, s in before.items()}
    grown = {role: size - memory[role] for role, size in way.memory_bytes().items()}
    return {
        "calls": calls,
        "seconds": seconds,
        "cpu_s": used,
        "memory_bytes": way.memory_bytes(),
        "grown_bytes": grown,
    }


def in_sequence(way: Ours | Pool, calls: int) -> Figures:
    seconds = []
    for number in range(calls):
        began = time.perf_counter()
        assert way.executor.submit(call, number).result(60) == number
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds}


@contextmanager
def pool() -> Iterator[Pool]:
    with ProcessPoolExecutor(SLOTS) as executor:
        list(executor.map(call, range(WARM_UP)))
        yield Pool(executor)


def measure(options: Any, one: Grid) -> dict[str, Any]:
    """Measure all ways in turns, so that disturbances hit all of them alike."""
    questions: dict[str, Callable[[Ours | Pool], Figures]] = {
        "map": lambda way: many(way, options.calls, None),
        "map, chunksize=1": lambda way: many(way, options.single, 1),
        "one after the other": lambda way: in_sequence(way, options.latency),
    }
    found: dict[str, Any] = {name: {"Loopline": [], "ProcessPoolExecutor": []} for name in questions}
    found["fsync_s"] = []
    token = one.token()
    with loopline.Executor(one.url, token) as executor, pool() as other:
        ways: list[Ours | Pool] = [Ours(one, executor), other]
        list(executor.map(call, range(WARM_UP)))
        for turn in range(options.rounds):
            for name, ask in questions.items():
                for way in ways if turn % 2 == 0 else reversed(ways):
                    progress(f"round {turn + 1} of {options.rounds}: {name}, {way.name}")
                    found[name][way.name].append(ask(way))
            found["fsync_s"] += fsync_s(one.folder)
    return found


def report(found: dict[str, Any]) -> str:
    rates = []
    for name in ("map", "map, chunksize=1"):
        for way, figures in found[name].items():
            best = min(figures, key=lambda one: one["seconds"])
            used = min((one["cpu_s"] for one in figures), key=lambda one: sum(one.values()))
            parts = ", ".join(f"{role} {1e6 * s / best['calls']:.1f}" for role, s in used.items())
            rate, cpu = count(best["calls"] / best["seconds"]), f"{1e6 * sum(used.values()) / best['calls']:.1f}"
            rates.append([f"{name}: {way}", count(best["calls"]), rate, cpu, parts])
    waits = []
    for way, figures in found["one after the other"].items():
        seconds = [s for one in figures for s in one["seconds"]]
        best_ms = min(1e3 * quantile(one["seconds"], 0.5) for one in figures)
        waits.append([way, *(f"{1e3 * quantile(seconds, part):.2f}" for part in (0.5, 0.9, 0.99)), f"{best_ms:.2f}"])
    waits.append(
        ["F: one fsync", *(f"{1e3 * quantile(found['fsync_s'], part):.2f}" for part in (0.5, 0.9, 0.99)), ""]
    )
    return "\n\n".join(
        [
            table(["calls", "number", "calls/s", "CPU us/call", "of which"], rates),
            table(["one after the other, ms", "p50", "p90", "p99", "best p50"], waits),
            _memory(found["map"]["Loopline"]),
            table(
                ["beside it", "durable", "number", "calls/s"],
                [
                    [one["way"], one["durable"], count(one["tasks"]), count(one["tasks"] / one["seconds"])]
                    for one in found["others"]
                ],
            ),
            *peers.hint(),
        ]
    )


def _memory(maps: list[Figures]) -> str:
    first, last = maps[0], maps[-1]
    parts = (
        f"{role} {last['memory_bytes'][role] / 2**20:.0f} ({last['grown_bytes'][role] / 2**20:+.1f})"
        for role in first["memory_bytes"]
    )
    return f"resident memory after the last map, MiB (its growth in it): {', '.join(parts)}"


def _own_memory_bytes() -> int:
    import os

    return tree_memory_bytes(os.getpid()) - sum(map(tree_memory_bytes, _children()))


def _children() -> list[int]:
    import os

    from loopline_worker.supervisor import processes

    return list(processes.children(os.getpid()))


async def run(options: Any) -> dict[str, Any]:
    async with grid(SLOTS) as one:
        found = await asyncio.to_thread(measure, options, one)
    others = [limits.floor(peers.CALLS, options.calls, SLOTS)]
    others += [] if options.no_peers else peers.ways(peers.CALLS, options.calls, SLOTS)
    figures = await in_turns(others, 1, progress)
    found["others"] = [{"way": way.name, "durable": way.durable, **figures[way.name][0]} for way in others
                       if way.name in figures]  # fmt: skip
    return found


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--calls", type=int, default=100_000)
    asking.add_argument("--single", type=int)
    asking.add_argument("--latency", type=int)
    asking.add_argument("--rounds", type=int)
    asking.add_argument("--no-peers", action="store_true")
    options = asking.parse_args()
    options.single = options.single or (20_000 if options.full else 2_000)
    options.latency = options.latency or (2_000 if options.full else 300)
    options.rounds = options.rounds or (3 if options.full else 2)
    found = asyncio.run(run(options))
    answer(found, report(found), options.json)


if __name__ == "__main__":
    main()
