"""How long a master takes to answer ``GET /timeline``: query, packing, zipping; and how its database looks.

    python benchmarks/timeline.py [--attempts 500000] [--database postgresql://...]

A history of so many attempts in ten days on 60 workers is written to an empty database, by default one in a temporary
folder. Nothing is deleted of another one.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import insert, text

sys.path.insert(0, str(Path(__file__).parents[1]))

from master.dashboard.columns import timeline
from master.scheduling.effects import Effects, Submitted
from master.scheduling.events import Batch
from master.scheduling.model import Attempt, Grid, Job
from master.store import Store, open_store
from master.store.rows import ATTEMPTS
from master.store.tables import attempts, tasks
from master.store.timeline import _bars
from shared.model import AttemptState, Order, Output
from shared.spec import JobSpec

DAYS, JOBS, WORKERS = 10, 50, 60
AT_ONCE = 10_000


async def main(count: int, database: str) -> None:
    now = time.time()
    begin = now - DAYS * 86400
    async with open_store(database) as store:
        await fill(store, count, begin, now)
        for name, since, until, more in (
            ("the latest 50,000", begin, now, {"limit": 50_000}),
            ("the latest 10,000", begin, now, {"limit": 10_000}),
            ("the last hour", now - 3600, now, {"limit": 10_000}),
            ("an hour a week ago", now - 7 * 86400, now - 7 * 86400 + 3600, {"limit": 10_000}),
            ("one job", 0.0, now, {"limit": 50_000, "job": 7}),
            ("one worker", 0.0, now, {"limit": 50_000, "worker": "pc-07"}),
        ):
            print(f"{name:20}", await measured(store, since, until, more), flush=True)
        print(*await plan(store, now - 86400, now), sep="\n")


async def measured(store: Store, since: float, until: float, more: dict[str, Any]) -> str:
    moments = [time.perf_counter()]
    window = await store.timelines.window(since, until, **more)
    moments.append(time.perf_counter())
    packed = timeline(window)
    moments.append(time.perf_counter())
    zipped = gzip.compress(packed, 3)
    moments.append(time.perf_counter())
    query, pack, squeeze = (1000 * (end - begin) for begin, end in pairwise(moments))
    sizes = f"{len(packed) / 1e3:6.0f} KB, zipped {len(zipped) / 1e3:4.0f} KB"
    return f"{len(window.bars):6} bars: query {query:4.0f} ms, pack {pack:4.0f} ms, zip {squeeze:3.0f} ms; {sizes}"


async def plan(store: Store, since: float, until: float) -> list[str]:
    def work(connection: Any) -> list[str]:
        literal = {"literal_binds": True}
        query = str(_bars(since, until, None, None, 50_000).compile(connection, compile_kwargs=literal))
        verb = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN ANALYZE"
        return [str(row[-1]) for row in connection.execute(text(f"{verb} {query}"))]

    return await store._read(work)


async def fill(store: Store, count: int, begin: float, end: float) -> None:
    jobs = {
        n: Job(n, "ann", JobSpec(command=["work"]), count, None, Order.HOLD, 3, 2, n, begin)
        for n in range(1, JOBS + 1)
    }
    await store.commit(Batch(begin), Effects(Grid(now=begin), [Submitted(n) for n in jobs], jobs))
    made = list(history(count, begin, end))
    for at in range(0, count, AT_ONCE):
        rows = ATTEMPTS.values(made[at : at + AT_ONCE])
        of = [
            {
                "job": r["job"],
                "number": r["task"],
                "state": "succeeded",
                "started": True,
                "attempts": 1,
                "failures": 0,
            }
            for r in rows
        ]

        def work(connection: Any, rows: Any = rows, of: Any = of) -> None:
            connection.execute(insert(tasks), of)
            connection.execute(insert(attempts), rows)

        await store._writer.write(work)


def history(count: int, begin: float, end: float) -> Iterator[Attempt]:
    random = Random(1)
    for number in range(1, count + 1):
        at = begin + (end - begin) * number / count
        attempt = Attempt(
            random.randint(1, JOBS), number, 1, f"pc-{random.randrange(WORKERS):02}", 1, number % 7 == 0, at
        )
        attempt.state, attempt.accepted, attempt.stdout = AttemptState.SUCCEEDED, True, Output(6, data=b"hello\n")
        attempt.started_at, attempt.ended_at = at + 0.01, min(end, at + random.expovariate(1 / 600))
        attempt.freezes = ((at + 1, at + 5), (at + 7, at + 9)) if number % 10 == 0 else ()
        yield attempt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=500_000)
    parser.add_argument("--database", help="an empty one; else SQLite in a temporary folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(chosen.attempts, chosen.database or f"sqlite:///{Path(folder) / 'loopline.db'}"))
