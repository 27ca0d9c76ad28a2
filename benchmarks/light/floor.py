"""A master without features, as a yardstick: asyncio, SQLite with synchronous=FULL, lines of JSON over TCP.

    python -m benchmarks.light.floor DATABASE TASKS WINDOW

It hands out numbers and keeps results. What it acknowledges is on disk, many at once in one commit; that is all.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections import deque
from typing import Any

DONE = "UPDATE tasks SET state = 'done', exit_code = ?, wall_s = ?, stdout = ? WHERE id = ?"


class Floor:
    def __init__(self, database: str, tasks: int, window: int) -> None:
        self._database = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
            self._database.execute(statement)
        self._window = window
        self._inbox: deque[tuple[dict[str, Any], asyncio.StreamWriter]] = deque()
        self._called = asyncio.Event()
        self._queue = deque(range(1, tasks + 1))
        self._database.execute(
            "CREATE TABLE tasks (id INTEGER PRIMARY KEY, state TEXT, exit_code INT, wall_s REAL, stdout TEXT)"
        )
        rows = ((number, "queued") for number in self._queue)
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO tasks (id, state) VALUES (?, ?)", rows)
        self._database.execute("COMMIT")

    async def serve(self) -> None:
        server = await asyncio.start_server(self._hear, "127.0.0.1", 0, limit=2**24)
        print(server.sockets[0].getsockname()[1], flush=True)
        while True:
            await self._called.wait()
            self._called.clear()
            taken = [self._inbox.popleft() for _ in range(len(self._inbox))]
            results = [result for report, _ in taken for result in report["results"]]
            await asyncio.to_thread(self._commit, results)
            for report, writer in taken:
                room = min(self._window - report["held"], len(self._queue))
                run = [self._queue.popleft() for _ in range(room)]
                writer.write(json.dumps({"seen": report["seq"], "run": run}).encode() + b"\n")

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self._inbox.append((json.loads(line), writer))
            self._called.set()

    def _commit(self, results: list[list[Any]]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(DONE, results)
        self._database.execute("COMMIT")


async def bring(port: int, workers: int, tasks: int) -> float:
    """Return the seconds until the workers have brought all results, each half of its window at a time."""
    left = tasks

    async def one() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        held: deque[int] = deque()
        seq, done = 0, 0
        while left > 0:
            results = [(0, 0.001, "done\n", held.popleft()) for _ in range(done)]
            seq += 1
            writer.write(json.dumps({"seq": seq, "held": len(held), "results": results}).encode() + b"\n")
            answer = json.loads(await reader.readline())
            left -= done
            held.extend(answer["run"])
            done = (len(held) + 1) // 2
        writer.close()

    begin = time.perf_counter()
    await asyncio.wait([asyncio.create_task(one()) for _ in range(workers)], return_when=asyncio.ALL_COMPLETED)
    return time.perf_counter() - begin


if __name__ == "__main__":
    asyncio.run(Floor(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).serve())
