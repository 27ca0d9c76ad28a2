"""A lock that lets only one master use a database: two would contradict one another.

It ends with its process, however that ends. On PostgreSQL it belongs to the connection that writes, so that a
master that lost its lock cannot write either; a standby cuts the connection of one that is silent.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sqlalchemy import Connection, func, insert, select, text, update

from loopline_master.store.tables import mastership
from loopline_shared.errors import LooplineError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[str]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


SILENT_FOR_S = 8.0
"""A master says that it is alive with every commit, and every few seconds anyhow (Store.watch)."""
_TRIES, _LET_GO_S = 3, 0.2
_NOW = func.extract("epoch", func.clock_timestamp())
_END_HOLDER = """
SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = :high AND objid = :low AND objsubid = 1
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND state <> 'active'
"""
"""One whose statement is under way is not silent: the server is at work for it."""

log = logging.getLogger(__name__)
_ADVISORY_KEY = int.from_bytes(b"loopline")


class FileLock:
    """A locked file beside the database file. Closing it unlocks; the file stays, since removing it would let two
    in.
    """

    def __init__(self, database: Path) -> None:
        _refuse_second_name(database)
        path = database.with_name(database.name + ".lock")
        self._file = path.open("a")
        try:
            _try_lock(self._file)
        except OSError:
            self._file.close()
            raise _in_use(str(database)) from None

    def close(self) -> None:
        """Unlock."""
        self._file.close()


def _refuse_second_name(database: Path) -> None:
    """Raises LooplineError for a hard link: a master that uses the other name would lock another file."""
    if database.exists() and database.stat().st_nlink > 1:
        message = f"the database {database} is a hard link: another master could use it under its other name"
        hint = (
            f"remove the other name, or make a copy: cp {database} {database}.copy && mv {database}.copy {database}"
        )
        raise LooplineError("database_linked", message, hint)


async def lock_connection(writer: AsyncConnection, name: str, *, ends_silent: bool = False) -> None:
    """Take PostgreSQL's lock, which is held for as long as this connection is open.

    ``ends_silent``: a master that has the lock, and was not heard of for long, loses its connection and with it the
    lock. Raises LooplineError if another one has it.
    """
    for _ in range(_TRIES if ends_silent else 1):
        locked = await writer.scalar(select(func.pg_try_advisory_lock(_ADVISORY_KEY)))
        await writer.commit()
        if locked:
            return
        if not ends_silent or not await writer.run_sync(_end_silent):
            break
        await writer.commit()
        await asyncio.sleep(_LET_GO_S)
    raise _in_use(name)


def _end_silent(connection: Connection) -> bool:
    """Cut the connection of a master that has the lock and is silent; True if one was."""
    if connection.scalar(text("SELECT to_regclass('mastership')")) is None:
        return False
    silent_s = connection.scalar(select(_NOW - mastership.c.beat_at))
    if silent_s is None or silent_s < SILENT_FOR_S:
        return False
    key = {"high": _ADVISORY_KEY >> 32, "low": _ADVISORY_KEY & 0xFFFFFFFF}
    ended = connection.execute(text(_END_HOLDER), key).fetchall()
    if ended:
        log.warning("the master that wrote was not heard of for %.0f s: taking over", silent_s)
    return bool(ended)


class Epoch:
    """The epoch of this master on PostgreSQL, which stands in every commit: it ends when another begins."""

    def __init__(self) -> None:
        self.number: int | None = None  # None: it has none yet, or needs none

    def begin(self, connection: Connection) -> None:
        """Begin a new epoch: that of the master before is over."""
        if connection.dialect.name != "postgresql":
            return
        before = connection.scalar(select(mastership.c.epoch).with_for_update())
        if before is None:
            connection.execute(insert(mastership).values(id=1, epoch=1, beat_at=_NOW))
        else:
            connection.execute(update(mastership).values(epoch=before + 1, beat_at=_NOW))
        self.number = (before or 0) + 1

    def holds(self, connection: Connection) -> bool:
        """True if no other epoch has begun. The commit says that this master is alive."""
        if self.number is None:
            return True
        mine = update(mastership).where(mastership.c.epoch == self.number).values(beat_at=_NOW)
        return connection.execute(mine).rowcount == 1


def _in_use(name: str) -> LooplineError:
    return LooplineError(
        "database_in_use",
        f"another master is using the database {name}",
        "stop that master first, or give this one a database of its own (--data-dir, --database-url)",
        status=503,
    )
