"""A database, by URL: one connection that writes, and a few that only read.

The rest of the store are plain functions of a connection, called ``work``. On SQLite they run in threads, a whole
transaction at a time (sqlite.py). On PostgreSQL they run through SQLAlchemy's bridge to an asynchronous driver.

SQLite is one file in WAL mode. Only the writer ever writes or checkpoints, and its transactions take the write lock
at once (BEGIN IMMEDIATE): they never fail half-way for lack of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from loopline_master.store.broken import explained
from loopline_master.store.database.sqlite import READER_PRAGMAS, WRITER_PRAGMAS, in_threads
from loopline_master.store.database.transact import Result, Transact
from loopline_master.store.lock import FileLock, lock_connection
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

READERS = 4
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}


@dataclass(frozen=True, slots=True)
class Database:
    """The connections of one database.

    ``write`` runs one transaction at a time, over the connection that locks out other masters. ``read`` sees one
    state of the whole database and cannot write; ``look`` is the same, one at a time, for short reads.
    """

    write: Transact
    read: Transact
    look: Transact


@asynccontextmanager
async def open_database(url: URL) -> AsyncIterator[Database]:
    """Open a database. Raises StoreBroken if that fails, LooplineError if another master has it open."""
    async with AsyncExitStack() as stack:  # closed in reverse order: the writer goes last, and checkpoints the WAL
        if is_sqlite(url):
            with explained("writing to", url):
                stack.enter_context(closing(FileLock(Path(url.database or ""))))
        write = await stack.enter_async_context(writing(url, exclusive=True))
        read = await stack.enter_async_context(reading(url))
        look = await stack.enter_async_context(_looking(url)) if is_sqlite(url) else read
        yield Database(write, read, look)


def parse_url(url: str) -> URL:
    """Return the URL with Loopline's driver. Raises LooplineError if it names no suitable database."""
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
    """True if the URL names a SQLite file."""
    return url.get_backend_name() == "sqlite"


@asynccontextmanager
async def reading(url: URL) -> AsyncIterator[Transact]:
    """Open connections that read."""
    if is_sqlite(url):
        async with in_threads(url, "reading", READERS, "BEGIN", READER_PRAGMAS) as read:
            yield read
        return
    read_only = {"server_settings": {"default_transaction_read_only": "on"}}
    options = {"isolation_level": "REPEATABLE READ", "connect_args": read_only, "pool_pre_ping": True}
    async with _postgres(url, READERS, **options) as engine:

        async def read(work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
            with explained("reading", url):
                async with engine.begin() as connection:
                    return await connection.run_sync(work)

        yield read


def _looking(url: URL) -> AbstractAsyncContextManager[Transact]:
    return in_threads(url, "reading", 1, "BEGIN", READER_PRAGMAS)


@asynccontextmanager
async def writing(url: URL, *, exclusive: bool = False, foreign_keys: bool = True) -> AsyncIterator[Transact]:
    """Open the connection that writes. ``exclusive``: lock out others (PostgreSQL; a SQLite file has a FileLock)."""
    if is_sqlite(url):
        pragmas = (*WRITER_PRAGMAS, f"foreign_keys={foreign_keys:d}")
        async with in_threads(url, "writing to", 1, "BEGIN IMMEDIATE", pragmas) as write:
            yield write
        return
    async with _postgres(url, 1) as engine, AsyncExitStack() as stack:
        with explained("writing to", url):
            connection = await stack.enter_async_context(engine.connect())
            if exclusive:
                await lock_connection(connection, url.render_as_string())
        turn = asyncio.Lock()

        async def write(work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
            with explained("writing to", url):
                async with turn, connection.begin():
                    return await connection.run_sync(work)

        yield write


@asynccontextmanager
async def _postgres(url: URL, connections: int, **options: Any) -> AsyncIterator[AsyncEngine]:
    from sqlalchemy.ext.asyncio import create_async_engine  # slow to import, and SQLite does not need it

    try:
        engine = create_async_engine(url, pool_size=connections, max_overflow=0, **options)
    except ModuleNotFoundError as error:
        hint = "pip install 'loopline[master,postgres]'"
        raise LooplineError("missing_driver", f"{error.name} is not installed", hint) from None
    try:
        yield engine
    finally:
        await engine.dispose()


def _unfit(message: str) -> LooplineError:
    hint = "for example sqlite:////var/lib/loopline/loopline.db or postgresql://user:password@host/name"
    return LooplineError("database_url", message, hint)
