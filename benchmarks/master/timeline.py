"""Response time of ``GET /timeline``: query, packing, compression; and the state of its database.

A history of attempts in ten days on 60 workers is written to an empty database, by default one in a temporary folder.
Nothing is deleted from any other database.

    python benchmarks/master/timeline.py [--full] [--attempts 50000] [--database postgresql://...] [--json]
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, count, milliseconds, parser, progress, table
from loopline_master.core.events import Batch
from loopline_master.core.kernel.effects import Effects, Submitted
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Task
from loopline_master.dashboard.columns import timeline
from loopline_master.store import Store, open_store
from loopline_master.store.queries.timeline_queries import ALL, _bars
from loopline_shared.model import AttemptState, Order, Output, TaskState
from loopline_shared.spec import JobSpec

DAYS, JOBS, WORKERS = 10, 50, 60
AT_ONCE = 10_000


async def measure(attempts: int, database: str) -> dict[str, Any]:
    now = time.time()
    begin = now - DAYS * 86400
    windows: list[tuple[str, float, float, dict[str, Any]]] = [
        ("the latest 50,000", begin, now, {"limit": 50_000}),
        ("the latest 10,000", begin, now, {"limit": 10_000}),
        ("the last hour", now - 3600, now, {"limit": 10_000}),
        ("an hour a week ago", now - 7 * 86400, now - 7 * 86400 + 3600, {"limit": 10_000}),
        ("one job", 0.0, now, {"limit": 50_000, "job": 7}),
        ("one worker", 0.0, now, {"limit": 50_000, "worker": "pc-07"}),
    ]
    async with open_store(database) as store:
        progress(f"writing {attempts:,} attempts ...")
        await fill(store, attempts, begin, now)
        rows = [{"what": name} | await measured(store, since, until, more) for name, since, until, more in windows]
        return {"attempts": attempts, "rows": rows, "plan": await plan(store, now - 86400, now)}


async def measured(store: Store, since: float, until: float, more: dict[str, Any]) -> dict[str, float]:
    moments = [time.perf_counter()]
    window = await store.timelines.window(since, until, **more)
    moments.append(time.perf_counter())
    packed = timeline(window)
    moments.append(time.perf_counter())
    zipped = gzip.compress(packed, 3)
    moments.append(time.perf_counter())
    query_s, pack_s, zip_s = (end - begin for begin, end in pairwise(moments))
    sizes = {"bytes": len(packed), "zipped_bytes": len(zipped)}
    return {"bars": len(window.bars), "query_s": query_s, "pack_s": pack_s, "zip_s": zip_s, **sizes}


async def plan(store: Store, since: float, until: float) -> list[str]:
    def work(connection: Any) -> list[str]:
        literal = {"literal_binds": True}
        query = str(_bars(since, until, ALL, 50_000).compile(connection, compile_kwargs=literal))
        verb = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN ANALYZE"
        return [str(row[-1]) for row in connection.execute(text(f"{verb} {query}"))]

    return await store._read(work)


async def fill(store: Store, attempts: int, begin: float, end: float) -> None:
    jobs = {
        n: Job(n, "ann", JobSpec(command=["work"]), attempts, None, Order.HOLD, 3, 2, n, begin)
        for n in range(1, JOBS + 1)
    }
    await store.commit(Batch(begin), Effects(Grid(now=begin), replies=[Submitted(n) for n in jobs], jobs=jobs))
    made = history(attempts, begin, end)
    while some := list(islice(made, AT_ONCE)):
        of = {a.id.task_id: Task(a.job, a.task, TaskState.SUCCEEDED, started=True, attempts=1) for a in some}
        await store.commit(Batch(begin), Effects(Grid(now=begin), tasks=of, attempts={a.id: a for a in some}))


def history(attempts: int, begin: float, end: float) -> Iterator[Attempt]:
    random = Random(1)
    for number in range(1, attempts + 1):
        at = begin + (end - begin) * number / attempts
        attempt = Attempt(
            random.randint(1, JOBS), number, 1, f"pc-{random.randrange(WORKERS):02}", 1, number % 7 == 0, at
        )
        attempt.state, attempt.accepted, attempt.stdout = AttemptState.SUCCEEDED, True, Output(6, data=b"hello\n")
        attempt.started_at, attempt.ended_at = at + 0.01, min(end, at + random.expovariate(1 / 600))
        attempt.freezes = ((at + 1, at + 5), (at + 7, at + 9)) if number % 10 == 0 else ()
        yield attempt


def show(found: dict[str, Any]) -> str:
    lines = [
        [row["what"], count(row["bars"]), *(milliseconds(row[name]) for name in ("query_s", "pack_s", "zip_s")),
         count(row["bytes"] / 1e3), count(row["zipped_bytes"] / 1e3)]
        for row in found["rows"]
    ]  # fmt: skip
    head = ["window", "bars", "query ms", "pack ms", "zip ms", "KB", "zipped KB"]
    return "\n".join([table(head, lines), "", *found["plan"]])


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--attempts", type=int, help="50,000; in the full form 500,000")
    asking.add_argument("--database", help="an empty one; else SQLite in a temporary folder")
    options = asking.parse_args()
    attempts = options.attempts or (500_000 if options.full else 50_000)
    with tempfile.TemporaryDirectory() as folder:
        database = options.database or f"sqlite:///{Path(folder) / 'loopline.db'}"
        found = asyncio.run(measure(attempts, database))
    answer(found, show(found), options.json)


if __name__ == "__main__":
    main()
