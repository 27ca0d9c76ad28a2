"""A database, by URL: one connection that writes, and a few that only read.

The rest of the store are plain functions of a connection, called ``work``; a Transact runs them. On SQLite they run
in threads, a whole transaction at a time, because a disk may be slow: a driver that changes threads for every
statement takes five times as long for a small commit. Short transactions run without a thread as long as they are
quick (QUICK_S). On PostgreSQL work runs through SQLAlchemy's bridge to an asynchronous driver, except that steps
which change one row of each table are written and committed in one round trip.

SQLite is one file in WAL mode. Only the writer ever writes or checkpoints, and its transactions take the write lock
at once (BEGIN IMMEDIATE): they never fail half-way for lack of it.

Errors of the database are reported in terms that an operator can act on (StoreBroken).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic as _now
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, SQLAlchemyError

from loopline_master.store import postgres
from loopline_master.store.errands import Errands
from loopline_master.store.lock import WITH_BEAT, Epoch, FileLock, lock_connection
from loopline_master.store.rows import Writes
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

Result = TypeVar("Result")

_CAUSES = (  # (text of the database's error, its meaning, the remedy)
    ("disk is full", "the disk is full", "free some space, then start the master again"),
    ("No space left", "the disk is full", "free some space, then start the master again"),
    ("disk I/O error", "the disk does not take what is written", "check the disk, its quota and file size limits"),
    ("malformed", "the database file is damaged", "restore it from a backup"),
    ("not a database", "the file is not a Loopline database", "name another file, or move this one away"),
    ("readonly database", "the database may not be written", "give the master's user the right to write it"),
    ("unable to open", "the file cannot be opened", "check that its folder exists and may be written"),
    ("No such file", "the file cannot be opened", "check that its folder exists and may be written"),
)
_AWAY = ("its server is away", "the master continues by itself once it is back")
_WRITE = "BEGIN IMMEDIATE"
_LOCKED = (
    "another program has locked the file",
    "end what that program does there (`fuser FILE` names it); the master continues by itself then",
)
_LOCKED_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_LOCKED_FOR_S, _LOCKED_PAUSE_S = 5.0, 0.01
"""A transaction waits for a foreign lock this long, in a thread."""
_UNKNOWN = ("it does not do what it was asked to", "see what it says")

READERS = 4
_DIVISION_BY_ZERO = "22012"
SUPERSEDED = "superseded"
"""Code of the error that ends a master after another one has taken over."""
_CONFIRM_WITHIN_S = 5.0
_MOST_FREED = 10_000  # pages at once: some 20 us each

QUICK_S = 0.001
"""After a transaction that took no longer, a short one runs in the event loop's own thread: handing it to another
thread and back takes as long as a good disk does. A slow disk is waited for in a thread.
"""
WRITER_PRAGMAS = (
    "busy_timeout=5000",
    "cache_size=-16384",
    "auto_vacuum=INCREMENTAL",
    "journal_mode=WAL",
    "synchronous=FULL",
    "journal_size_limit=67108864",
)
READER_PRAGMAS = ("busy_timeout=5000", "cache_size=-2048", "query_only=ON")
"""Each connection that reads keeps 2 MiB of the file: the system's cache has the rest."""


class Transact(Protocol):
    """Runs work in one transaction, which is committed on return and undone if the work raises.

    Raises StoreBroken if the database itself fails. ``is_short``: the work touches a few rows only.
    """

    async def __call__(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result: ...


class StoreBroken(LooplineError):  # noqa: N818 (it is a state, and an error only for the request at hand)
    """The database failed. Memory may be ahead of it: the master must stop, and start again from disk.

    ``is_passing``: no action is needed, and the master may start again once the database is back.
    """

    is_passing = False
    cause = ""
    """What is wrong, in a few words that name no file or server."""


Doing = Literal["reading", "writing to"]


@contextmanager
def explained(doing: Doing, database: URL) -> Iterator[None]:
    """Turn all errors of the database into StoreBroken."""
    try:
        yield
    except Exception as error:
        if broken := _broken(doing, database, error):
            raise broken from error
        raise


def _broken(doing: Doing, database: URL, error: Exception) -> StoreBroken | None:
    """Return the StoreBroken for an error of the database; None for other errors."""
    if isinstance(error, LooplineError) or not _is_of_the_database(error):
        return None
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip() or type(error).__name__
    meaning, hint = next(((means, do) for sign, means, do in _CAUSES if sign in said), _UNKNOWN)
    is_passing = is_locked(error) if is_sqlite(database) else postgres.is_passing(error)
    if is_passing:
        meaning, hint = _LOCKED if is_sqlite(database) else _AWAY
    message = f"{doing} the database failed: {meaning} ({database.render_as_string()}: {said})"
    broken = StoreBroken("store_broken", message, hint, status=503)
    broken.is_passing, broken.cause = is_passing, meaning
    return broken


def is_locked(error: BaseException) -> bool:
    """True if another program has locked a SQLite file."""
    raised = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(raised, sqlite3.OperationalError) and raised.sqlite_errorcode & 0xFF in _LOCKED_CODES


def _superseded() -> StoreBroken:
    return _passing(SUPERSEDED, "another master has taken over", "this one continues as a standby")


def _passing(code: str, message: str, hint: str) -> StoreBroken:
    broken = StoreBroken(code, message, hint, status=503)
    broken.is_passing = True
    return broken


def _is_of_the_database(error: Exception) -> bool:
    return isinstance(error, SQLAlchemyError | sqlite3.Error | OSError) or type(error).__module__.startswith(
        "asyncpg"
    )


@dataclass(frozen=True, slots=True)
class Database:
    """The connections of one database.

    ``write`` runs one transaction at a time, over the connection that locks out other masters. ``read`` sees one
    state of the whole database and cannot write; ``look`` is for one short query, and runs one at a time.
    """

    write: Transact
    read: Transact
    look: Transact
    epoch: Epoch

    async def confirm(self) -> None:
        """Raises StoreBroken if another master has taken over, or may have: this one says nothing then."""
        if self.epoch.is_sure:
            return
        try:
            async with asyncio.timeout(_CONFIRM_WITHIN_S):
                is_current = await self.read(self.epoch.is_current)
        except TimeoutError:
            raise _passing("database_silent", "the database says nothing", "the master asks it again") from None
        if not is_current:
            raise _superseded()


@asynccontextmanager
async def open_database(url: URL, *, standby: bool = False, epoch: Epoch | None = None) -> AsyncIterator[Database]:
    """Open a database. Raises StoreBroken if that fails, LooplineError if another master has it open.

    ``standby``: a silent one loses it. ``epoch``: the one before of this master.
    """
    epoch = epoch or Epoch()
    async with AsyncExitStack() as stack:  # closed in reverse order: the writer goes last, and checkpoints the WAL
        if is_sqlite(url):
            with explained("writing to", url):
                stack.enter_context(closing(FileLock(Path(url.database or ""))))
        write = await stack.enter_async_context(writing(url, exclusive=True, epoch=epoch, standby=standby))
        if is_sqlite(url):
            Path(url.database or "").chmod(0o600)  # users' programs and data; its other files follow it
        read = await stack.enter_async_context(reading(url))
        look = await stack.enter_async_context(_looking(url))
        yield Database(write, read, look, epoch)


def parse_url(url: str) -> URL:
    """Return the URL with Loopline's driver. Raises LooplineError if it names no suitable database."""
    if url.partition(":")[0].partition("+")[0] in ("postgresql", "postgres"):
        return postgres.parse_postgres(url)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise _unfit("this is not a database URL") from None
    if not is_sqlite(parsed):
        raise _unfit(f"{parsed.get_backend_name()} is not a database that Loopline can use")
    if parsed.database in (None, "", ":memory:"):
        raise _unfit("a database in memory would not survive its master")
    return parsed.set(drivername="sqlite")


def is_sqlite(url: URL) -> bool:
    """True if the URL names a SQLite file."""
    return url.get_backend_name() == "sqlite"


def shrink(connection: Connection) -> None:
    """Return free pages of a SQLite file to the disk, at most ``_MOST_FREED``, so that the writer is not delayed."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        (free,) = driver.execute("PRAGMA freelist_count").fetchone()
        for _ in range(min(free, _MOST_FREED)):
            driver.execute("PRAGMA incremental_vacuum(1)")  # a page each: Python's driver steps it but once


def reading(url: URL) -> AbstractAsyncContextManager[Transact]:
    """Open connections that read."""
    if is_sqlite(url):
        return in_threads(url, "reading", READERS, "BEGIN", READER_PRAGMAS)
    return _reading_postgres(url, READERS, "REPEATABLE READ")


def _looking(url: URL) -> AbstractAsyncContextManager[Transact]:
    if is_sqlite(url):
        return in_threads(url, "reading", 1, "BEGIN", READER_PRAGMAS)
    return _reading_postgres(url, 1, "AUTOCOMMIT")  # without round trips for BEGIN and COMMIT


@asynccontextmanager
async def _reading_postgres(url: URL, count: int, isolation: str) -> AsyncIterator[Transact]:
    read_only = {"default_transaction_read_only": "on"}
    async with postgres.connections(url, count, server_settings=read_only, isolation_level=isolation) as engine:
        event.listen(engine.sync_engine, "checkout", _refuse_closed)

        async def read(work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
            with explained("reading", url):
                async with engine.begin() as connection:
                    return await connection.run_sync(work)

        yield read


def _refuse_closed(dbapi_connection: Any, *_: object) -> None:
    """Have the pool open another connection if the server has closed this one. A ping takes three round trips."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError


@asynccontextmanager
async def writing(
    url: URL,
    *,
    exclusive: bool = False,
    foreign_keys: bool = True,
    epoch: Epoch | None = None,
    standby: bool = False,
) -> AsyncIterator[Transact]:
    """Open the connection that writes. ``exclusive``: lock out others (PostgreSQL; a SQLite file has a FileLock).

    ``epoch`` stands in every commit (PostgreSQL).
    """
    if is_sqlite(url):
        pragmas = (*WRITER_PRAGMAS, f"foreign_keys={foreign_keys:d}")
        async with in_threads(url, "writing to", 1, _WRITE, pragmas) as write:
            yield write
        return
    async with postgres.connections(url, 1, is_limited=exclusive) as engine, AsyncExitStack() as stack:
        with explained("writing to", url):
            connection = await stack.enter_async_context(postgres.connected(engine))
            if exclusive:
                await lock_connection(connection, url.render_as_string(), ends_silent=standby)
        writer = _WritingConnection(connection, url, epoch)
        stack.push_async_callback(writer.close)
        yield writer.run


class _WritingConnection:
    """The connection that writes to PostgreSQL. The lock ends with it: no other connection takes its place."""

    def __init__(self, connection: AsyncConnection, url: URL, epoch: Epoch | None) -> None:
        self._connection, self._url, self._epoch = connection, url, epoch
        self._turn, self._under_way = asyncio.Lock(), set[asyncio.Task[Any]]()

    async def run(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
        """Run work in a transaction, which continues even if its caller is cancelled.

        To cancel a statement would end the connection.
        """
        self._under_way.add(task := asyncio.create_task(self._transact(work)))
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _transact(self, work: Callable[[Connection], Result]) -> Result:
        with explained("writing to", self._url):
            async with self._turn:
                if self._connection.invalidated:
                    raise _passing("database_lost", "the connection to the database was lost", _AWAY[1])
                if isinstance(work, Writes) and self._epoch and self._epoch.number is not None:
                    end = WITH_BEAT.format(number=self._epoch.number)
                    if statements := work.joined(self._connection.dialect, end):
                        await self._write_rows(self._epoch, statements)
                        return None  # type: ignore[return-value]  # as these works do
                async with self._connection.begin():
                    done = await self._connection.run_sync(work)
                    if self._epoch and not await self._connection.run_sync(self._epoch.holds):
                        raise _superseded()
            if self._epoch:
                self._epoch.note_commit()
            return done

    async def _write_rows(self, epoch: Epoch, statements: list[tuple[str, list[Any]]]) -> None:
        """Write rows in one round trip for each statement; one statement is a transaction by itself."""
        driver: Any = (await self._connection.get_raw_connection()).driver_connection
        epoch.say()
        try:
            async with driver.transaction() if len(statements) > 1 else nullcontext():
                for text, values in statements:
                    row = await driver.fetchrow(text, *values)
        except Exception as error:
            if getattr(error, "sqlstate", None) == _DIVISION_BY_ZERO:
                raise _superseded() from None
            raise
        epoch.note_commit(row[0])

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved; a waiting caller gets it too


def _unfit(message: str) -> LooplineError:
    hint = "for example sqlite:////var/lib/loopline/loopline.db or postgresql://user:password@host/name"
    return LooplineError("database_url", message, hint)


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


class _LockedNow(Exception):  # noqa: N818
    """The file is locked, and the event loop's own thread must not wait."""


class _Threads:
    """Threads with a connection each. ``run`` is a Transact; if there is only one thread, short work runs without
    it.
    """

    def __init__(self, url: URL, doing: Doing, count: int, begin: str, pragmas: tuple[str, ...]) -> None:
        self._url, self._doing, self._begin = url, doing, begin
        self._is_one = count == 1
        self._engine = create_engine(url, pool_size=count, max_overflow=0)
        _prepare(self._engine, pragmas)
        self._errands, self._connections = Errands(self._timed, count), list[Connection]()
        self._own: Any = SimpleNamespace(took_s=inf) if self._is_one else threading.local()

    async def run(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
        """Run work in a transaction."""
        try:
            if is_short and self._is_one and not self._errands.under_way and self._own.took_s <= QUICK_S:
                with suppress(_LockedNow):  # then it waits in a thread
                    return self._timed(work, patience_s=0.0)
            result: Result = await self._errands.give(work)
            return result
        except Exception as error:  # as ``explained`` does, without a generator for each
            if broken := _broken(self._doing, self._url, error):
                raise broken from error
            raise

    def close(self) -> None:
        """Finish the work that has been given, and close the connections."""
        self._errands.close()
        for connection in self._connections:
            connection.close()
        self._engine.dispose()

    def _timed(self, work: Callable[[Connection], Result], patience_s: float = _LOCKED_FOR_S) -> Result:
        begun_at = _now()
        try:
            return self._transact(work, patience_s)
        finally:
            self._own.took_s = _now() - begun_at

    def _transact(self, work: Callable[[Connection], Result], patience_s: float) -> Result:
        connection = self._connection()
        driver: Any = connection.connection.driver_connection
        self._begin_transaction(driver, patience_s)
        try:
            result = work(connection)
            driver.execute("COMMIT")
        except BaseException:
            if driver.in_transaction:  # some errors end the transaction themselves
                driver.execute("ROLLBACK")
            raise
        return result

    def _begin_transaction(self, driver: Any, patience_s: float) -> None:
        """Begin a transaction; wait for a foreign lock. Raises _LockedNow if there is no time to wait."""
        give_up = None
        while True:
            try:
                driver.execute(self._begin)
                return
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
                if not patience_s:
                    raise _LockedNow from error
                give_up = give_up or _now() + patience_s
                if _now() > give_up:
                    raise
            sleep(_LOCKED_PAUSE_S)

    def _connection(self) -> Connection:
        """Return the thread's own connection. SQLAlchemy sees its whole life as one transaction."""
        if not hasattr(self._own, "connection"):
            self._own.connection = self._engine.connect()
            self._own.connection.begin()
            if self._begin == _WRITE:
                driver: Any = self._own.connection.connection.driver_connection
                driver.execute("PRAGMA busy_timeout=0")  # _begin_transaction waits
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
