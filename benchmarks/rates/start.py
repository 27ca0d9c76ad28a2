"""Time from nothing to the first result: a master and a worker are started, and a process is run.

In a fresh folder, where everything has to be created first; and in the folder of an earlier grid, stopped in order or
killed. The worker is started once the master serves; or both at once, as `loopline local` does it. The client exists
already, as for peers, and files are in the page cache. A peer's first result is that of a process too.

    python benchmarks/rates/start.py [--full] [--rounds 3] [--no-peers] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness import limits, peers
from benchmarks.harness.grid import Figures, Grid, Run, Way, in_turns
from benchmarks.harness.tables import answer, count, median, parser, progress, table
from benchmarks.rates.latency import one_process
from loopline.local.local_grid import reserved

KNOCKING = ("--retry-min-s", "0.02", "--retry-max-s", "0.1")


async def first_result(one: Grid) -> Figures:
    begin = time.perf_counter()
    await one.start_master()
    serving = time.perf_counter()
    await one.start_worker()
    async with one.client() as client:
        await one_process(client)
    return {"seconds": time.perf_counter() - begin, "master_s": serving - begin}


async def both_at_once(one: Grid) -> Figures:
    begin = time.perf_counter()
    port = reserved()
    one.url = f"http://127.0.0.1:{port.number}"
    token = one.folder / "master" / "tokens" / "worker"
    token.parent.mkdir(mode=0o700, parents=True)
    token.touch(mode=0o600)  # which the master fills
    await one.run("master", "loopline_master", "--port", str(port.number))
    await one.start_worker("w1", *KNOCKING)
    await one.until_said("master", "serves at ")
    serving = time.perf_counter()
    async with one.client() as client:
        await one_process(client)
    port.release()
    return {"seconds": time.perf_counter() - begin, "master_s": serving - begin}


@asynccontextmanager
async def ours(before: str, start: Callable[[Grid], Awaitable[Figures]] = first_result) -> AsyncIterator[Run]:
    """``before``: state of the folder."""
    with tempfile.TemporaryDirectory(prefix="loopline-bench-", ignore_cleanup_errors=True) as folder:
        one = Grid(Path(folder))
        try:
            if before != "nothing":
                await first_result(one)
                await (one.kill() if before == "killed" else one.stop())
            yield lambda: start(one)
        finally:
            await one.stop()


def ways(options: argparse.Namespace) -> list[Way]:
    found = [
        Way("Loopline, fresh folder", "yes", lambda: ours("nothing")),
        Way("Loopline, both at once", "yes", lambda: ours("nothing", both_at_once)),
        Way("Loopline, again", "yes", lambda: ours("stopped")),
        Way("Loopline, after kill -9", "yes", lambda: ours("killed")),
        limits.floor(peers.START, 1),
    ]
    return found if options.no_peers else [*found, *peers.ways(peers.START, 1)]


async def measure(options: argparse.Namespace) -> list[Figures]:
    these = ways(options)
    found = await in_turns(these, options.rounds, progress)
    return [_row(way, found[way.name]) for way in these if way.name in found]


def _row(way: Way, figures: list[Figures]) -> Figures:
    serving = [each["master_s"] for each in figures if "master_s" in each]
    return {
        "way": way.name,
        "durable": way.durable,
        "first_result_s": median(each["seconds"] for each in figures),
        "first_result_best_s": min(each["seconds"] for each in figures),
        "master_serves_s": median(serving) if serving else None,
    }


def show(rows: list[Figures]) -> str:
    lines = [
        [row["way"], row["durable"], *(count(1e3 * row[f"first_result{best}_s"]) for best in ("", "_best"))]
        for row in rows
    ]
    serving = (
        f"{row['way']}: the master serves after {count(1e3 * row['master_serves_s'])} ms."
        for row in rows
        if row["master_serves_s"]
    )
    head = ["way", "durable", "first result ms", "best ms"]
    return "\n".join([table(head, lines), "", *serving, *peers.hint()])


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--rounds", type=int, help="3; in the full form 10")
    asking.add_argument("--no-peers", action="store_true")
    options = asking.parse_args()
    options.rounds = options.rounds or (10 if options.full else 3)
    rows = asyncio.run(measure(options))
    answer(rows, show(rows), options.json)


if __name__ == "__main__":
    main()
