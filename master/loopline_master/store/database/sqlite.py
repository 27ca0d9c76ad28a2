"""Transactions on a SQLite file, each in a thread, because a disk may be slow.

A driver that changes threads for every statement takes five times as long for a small commit. Short transactions
run without a thread as long as they are quick (QUICK_S).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from math import inf
from time import monotonic as _now
from types import SimpleNamespace
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from loopline_master.store.broken import Doing, explained
from loopline_master.store.database.transact import Result, Transact

QUICK_S = 0.001
"""After a transaction that took no longer, a short one runs in the event loop's own thread: handing it to another
thread and back takes as long as a good disk does. A slow disk is waited for in a thread.
"""
_PRAGMAS = ("busy_timeout=5000", "temp_store=MEMORY", "cache_size=-16384")
WRITER_PRAGMAS = (*_PRAGMAS, "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864")
READER_PRAGMAS = (*_PRAGMAS, "query_only=ON")


@asynccontextmanager
async def in_threads(
    url: URL, doing: Doing, count: int, begin: str, pragmas: tuple[str, ...]
) -> AsyncIterator[Transact]:
    """Run transactions in ``count`` threads. ``begin``: the statement that begins each one.

    Raises StoreBroken at once if the file is unusable.
    """
    threads = _Threads(url, doing, count, begin, pragmas)
    try:
        await threads.run(lambda connection: None)
        yield threads.run
    finally:
        threads.close()


class _Threads:
    """Threads with a connection each. ``run`` is a Transact; if there is only one thread, short work runs without
    it.
    """

    def __init__(self, url: URL, doing: Doing, count: int, begin: str, pragmas: tuple[str, ...]) -> None:
        self._url, self._doing, self._begin = url, doing, begin
        self._is_one = count == 1
        self._engine = create_engine(url, pool_size=count, max_overflow=0)
        _prepare(self._engine, pragmas)
        self._pool, self._connections = ThreadPoolExecutor(count, "store"), list[Connection]()
        self._own: Any = SimpleNamespace(took_s=inf) if self._is_one else threading.local()
        self._under_way: set[Future[Any]] = set()

    async def run(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
        """Run work in a transaction."""
        with explained(self._doing, self._url):
            if is_short and self._is_one and not self._under_way and self._own.took_s <= QUICK_S:
                return self._timed(work)
            future = self._pool.submit(self._timed, work)
            self._under_way.add(future)
            future.add_done_callback(self._under_way.discard)
            return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish the work that has been given, and close the connections."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()
        self._engine.dispose()

    def _timed(self, work: Callable[[Connection], Result]) -> Result:
        begun_at = _now()
        try:
            return self._transact(work)
        finally:
            self._own.took_s = _now() - begun_at

    def _transact(self, work: Callable[[Connection], Result]) -> Result:
        connection = self._connection()
        driver: Any = connection.connection.driver_connection
        driver.execute(self._begin)
        try:
            result = work(connection)
            driver.execute("COMMIT")
        except BaseException:
            if driver.in_transaction:  # some errors end the transaction themselves
                driver.execute("ROLLBACK")
            raise
        return result

    def _connection(self) -> Connection:
        """Return the thread's own connection. SQLAlchemy sees its whole life as one transaction."""
        if not hasattr(self._own, "connection"):
            self._own.connection = self._engine.connect()
            self._own.connection.begin()
            self._connections.append(self._own.connection)
        found: Connection = self._own.connection
        return found


def _prepare(engine: Engine, pragmas: tuple[str, ...]) -> None:
    """Begin transactions explicitly: Python's driver would begin them late, and not at all for reading."""

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        with closing(connection.cursor()) as cursor:
            for pragma in pragmas:
                cursor.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", connected)
