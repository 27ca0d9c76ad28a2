"""One database, by URL: one connection that writes, and a few that only read.

All else in the store is plain functions of a connection, ``work``; here is where they run. On SQLite that is a
thread, whole transactions at a time: a driver that crosses threads for every statement takes five times as long
for a small commit. What is done quickly does without a thread (QUICK_S). On PostgreSQL it is SQLAlchemy's bridge
to an asynchronous driver.

SQLite is one file in WAL mode. Only the writer ever writes or checkpoints, and its transactions take the write
lock at once (BEGIN IMMEDIATE): they never fail half-way for want of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic as _now
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from master.store.broken import Doing, explained
from master.store.lock import FileLock, lock_connection
from shared.errors import LooplineError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

READERS = 4
QUICK_S = 0.001
"""After a transaction that took no longer, the next one is carried out in the event loop's own thread: to hand it to
another one, and to hear of its end, takes as long as a good disk does. A slow disk is waited for in a thread.
"""
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_PRAGMAS = ("busy_timeout=5000", "temp_store=MEMORY", "cache_size=-16384")
_WRITER_PRAGMAS = (*_PRAGMAS, "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864")
_READER_PRAGMAS = (*_PRAGMAS, "query_only=ON")

Result = TypeVar("Result")


class Transact(Protocol):
    """Does some work in one transaction: committed when it returns, undone when it raises. StoreBroken where it is
    the database that failed.
    """

    async def __call__(self, work: Callable[[Connection], Result]) -> Result: ...


@dataclass(frozen=True, slots=True)
class Database:
    """``write`` works one at a time, over the connection that keeps other masters out for as long as it is open.
    ``read`` sees one state of the whole database, and cannot write; ``look`` is the same for a row or two by their
    key, and does without a thread as long as that is quick.
    """

    write: Transact
    read: Transact
    look: Transact


@asynccontextmanager
async def open_database(url: URL) -> AsyncIterator[Database]:
    """StoreBroken where it cannot be opened, LooplineError where it is another master's."""
    async with AsyncExitStack() as stack:  # undone backwards: the writer goes last, and folds the WAL into the file
        if is_sqlite(url):
            with explained("writing to", url):
                stack.enter_context(closing(FileLock(Path(url.database or ""))))
        write = await stack.enter_async_context(writing(url, exclusive=True))
        read = await stack.enter_async_context(reading(url))
        look = await stack.enter_async_context(_looking(url)) if is_sqlite(url) else read
        yield Database(write, read, look)


def parse_url(url: str) -> URL:
    """The URL with the driver that Loopline uses; LooplineError where it names no database fit for it."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise _unfit("this is not a database URL") from None
    driver = _DRIVERS.get(parsed.get_backend_name())
    if driver is None:
        raise _unfit(f"{parsed.get_backend_name()} is not a database that Loopline can use")
    if is_sqlite(parsed) and parsed.database in (None, "", ":memory:"):
        raise _unfit("a database in memory would not survive its master")
    return parsed.set(drivername=driver)


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


@asynccontextmanager
async def reading(url: URL) -> AsyncIterator[Transact]:
    if is_sqlite(url):
        async with _threads(url, "reading", READERS, "BEGIN", _READER_PRAGMAS) as read:
            yield read
        return
    read_only = {"server_settings": {"default_transaction_read_only": "on"}}
    options = {"isolation_level": "REPEATABLE READ", "connect_args": read_only, "pool_pre_ping": True}
    async with _postgres(url, READERS, **options) as engine:

        async def read(work: Callable[[Connection], Result]) -> Result:
            with explained("reading", url):
                async with engine.begin() as connection:
                    return await connection.run_sync(work)

        yield read


def _looking(url: URL) -> AbstractAsyncContextManager[Transact]:
    return _threads(url, "reading", 1, "BEGIN", _READER_PRAGMAS, quick_s=QUICK_S)


@asynccontextmanager
async def writing(url: URL, *, exclusive: bool = False, foreign_keys: bool = True) -> AsyncIterator[Transact]:
    """``exclusive``: no other may be so (on PostgreSQL, that is; a SQLite file has a FileLock)."""
    if is_sqlite(url):
        pragmas = (*_WRITER_PRAGMAS, f"foreign_keys={foreign_keys:d}")
        async with _threads(url, "writing to", 1, "BEGIN IMMEDIATE", pragmas, quick_s=QUICK_S) as write:
            yield write
        return
    async with _postgres(url, 1) as engine, AsyncExitStack() as stack:
        with explained("writing to", url):
            connection = await stack.enter_async_context(engine.connect())
            if exclusive:
                await lock_connection(connection, url.render_as_string())
        turn = asyncio.Lock()

        async def write(work: Callable[[Connection], Result]) -> Result:
            with explained("writing to", url):
                async with turn, connection.begin():
                    return await connection.run_sync(work)

        yield write


@asynccontextmanager
async def _threads(
    url: URL, doing: Doing, count: int, begin: str, pragmas: tuple[str, ...], *, quick_s: float = 0.0
) -> AsyncIterator[Transact]:
    """``quick_s``: see QUICK_S; of one thread only."""
    engine = create_engine(url, pool_size=count, max_overflow=0)
    _prepare_sqlite(engine, pragmas)
    threads, connections = ThreadPoolExecutor(count, "store"), list[Connection]()
    own: Any = SimpleNamespace(took_s=inf) if quick_s else threading.local()
    under_way: set[Future[Any]] = set()

    def connection() -> Connection:
        """Each thread's own, or the only one. As far as SQLAlchemy knows, all of its life is one transaction."""
        if not hasattr(own, "connection"):
            own.connection = engine.connect()
            own.connection.begin()
            connections.append(own.connection)
        found: Connection = own.connection
        return found

    def transact(work: Callable[[Connection], Result]) -> Result:
        mine = connection()
        driver: Any = mine.connection.driver_connection
        driver.execute(begin)
        try:
            result = work(mine)
            driver.execute("COMMIT")
        except BaseException:
            if driver.in_transaction:  # some errors have ended it
                driver.execute("ROLLBACK")
            raise
        return result

    def timed(work: Callable[[Connection], Result]) -> Result:
        begun_at = _now()
        try:
            return transact(work)
        finally:
            own.took_s = _now() - begun_at

    async def run(work: Callable[[Connection], Result]) -> Result:
        with explained(doing, url):
            if quick_s and not under_way and own.took_s <= quick_s:
                return timed(work)
            future = threads.submit(timed, work)
            under_way.add(future)
            future.add_done_callback(under_way.discard)
            return await asyncio.wrap_future(future)

    try:
        await run(lambda connection: None)  # says at once if the file is unfit
        yield run
    finally:
        threads.shutdown()
        for one in connections:
            one.close()
        engine.dispose()


@asynccontextmanager
async def _postgres(url: URL, connections: int, **options: Any) -> AsyncIterator[AsyncEngine]:
    from sqlalchemy.ext.asyncio import create_async_engine  # takes long to import, and SQLite does without

    try:
        engine = create_async_engine(url, pool_size=connections, max_overflow=0, **options)
    except ModuleNotFoundError as error:
        hint = "pip install 'loopline[master,postgres]'"
        raise LooplineError("missing_driver", f"{error.name} is not installed", hint) from None
    try:
        yield engine
    finally:
        await engine.dispose()


def _prepare_sqlite(engine: Engine, pragmas: tuple[str, ...]) -> None:
    """Take transactions into our own hands: Python's driver would begin them late, and none for reading."""

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        with closing(connection.cursor()) as cursor:
            for pragma in pragmas:
                cursor.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", connected)


def _unfit(message: str) -> LooplineError:
    hint = "for example sqlite:////var/lib/loopline/loopline.db or postgresql://user:password@host/name"
    return LooplineError("database_url", message, hint)
