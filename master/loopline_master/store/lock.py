"""A lock that lets only one master use a database: two would contradict one another.

It ends with its process, however that ends. On PostgreSQL it belongs to the connection that writes, so that a
master that lost its lock cannot write either; a standby cuts the connection of a silent master.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

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
"""A master shows that it is alive with every statement of its writing connection, every few seconds (Store.watch)."""
_TRIES, _LET_GO_S = 3, 0.2
_NOW = func.extract("epoch", func.clock_timestamp())
_END_SILENT = """
SELECT extract(epoch FROM clock_timestamp() - state_change), pg_terminate_backend(pid)
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = :high AND objid = :low AND objsubid = 1
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (state <> 'active' OR wait_event_type = 'Client')
AND state_change < clock_timestamp() - make_interval(secs => :silent)
"""
"""A running statement shows this too, unless the server waits for its rest: the driver sends it in parts."""
_SERVER = """
SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()
"""
"""The second part is the number of its timeline: each promotion begins another one."""

WITH_BEAT = """, beat AS (
UPDATE mastership SET beat_at = extract(epoch FROM clock_timestamp()), commits = commits + 1
WHERE epoch = {number} RETURNING commits
) SELECT (SELECT commits FROM beat), 1 / (SELECT count(*) FROM beat)"""
"""End of a statement that commits on its own: it divides by zero if another epoch has begun, and is undone."""

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

    ``ends_silent``: a master that holds the lock and was silent for too long loses its connection, and with it the
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
    values = {"high": _ADVISORY_KEY >> 32, "low": _ADVISORY_KEY & 0xFFFFFFFF, "silent": SILENT_FOR_S}
    ended = connection.execute(text(_END_SILENT), values).fetchall()
    for silent_s, _ in ended:
        log.warning("the writing master was silent for %.0f s: taking over", silent_s)
    return bool(ended)


def _server_of(connection: Connection) -> str | None:
    """Return which server this is, and how often one was promoted in its history; None if it does not say."""
    try:
        with connection.begin_nested():
            return str(connection.execute(text(_SERVER)).scalar_one())
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return None


def _clock() -> float:
    """Return a time that includes suspends, if the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class Epoch:
    """The epoch of this master on PostgreSQL, which stands in every commit: it ends when another begins.

    It outlives connections, so that this master knows its last commit when the database is back.
    """

    def __init__(self) -> None:
        self.number: int | None = None  # None: it has none yet, or needs none
        self._kept: tuple[int, int] | None = None  # the epoch, and the number of the last commit that is on disk
        self._committing = 0
        self._said_at = self._heard_at = 0.0

    @property
    def is_sure(self) -> bool:
        """True if the database answered this master so recently that no other one can have taken over."""
        return self.number is None or _clock() < self._heard_at + SILENT_FOR_S

    def begin(self, connection: Connection) -> bool:
        """Begin a new epoch: that of the master before is over. Return True if commits may have been lost since."""
        here = _server_of(connection)
        row = connection.execute(select(mastership).with_for_update()).one_or_none()
        if row is None:
            connection.execute(insert(mastership).values(id=1, epoch=0, beat_at=_NOW))
        went_back = row is not None and self._went_back(row, here)
        self.number = (row.epoch if row else 0) + 1
        connection.execute(update(mastership).values(epoch=self.number, server=here))
        return went_back

    def _went_back(self, row: Row[Any], here: str | None) -> bool:
        """True if commits are missing here, or may be: another server has the rows, which may have been behind."""
        if self._kept and row.epoch <= self._kept[0]:  # no other master has written since
            return (row.epoch, row.commits) < self._kept
        return None not in (row.server, here) and row.server != here

    def holds(self, connection: Connection) -> bool:
        """True if no other epoch has begun. The commit says that this master is alive."""
        if self.number is None:
            return True
        self.say()
        mine = update(mastership).where(mastership.c.epoch == self.number)
        counted = mine.values(beat_at=_NOW, commits=mastership.c.commits + 1).returning(mastership.c.commits)
        found = connection.execute(counted).scalar()
        self._committing = found or 0
        return found is not None

    def say(self) -> None:
        """Note that a heartbeat is about to be sent."""
        self._said_at = _clock()

    def note_commit(self, commits: int | None = None) -> None:
        """Note that the database has confirmed the last heartbeat, and the number of its commit."""
        self._committing = self._committing if commits is None else commits
        self._heard_at = self._said_at
        self._kept = None if self.number is None else (self.number, self._committing)

    def is_current(self, connection: Connection) -> bool:
        """True if no other epoch has begun, by a connection that reads."""
        return self.number is None or connection.scalar(select(mastership.c.epoch)) == self.number


def _in_use(name: str) -> LooplineError:
    return LooplineError(
        "database_in_use",
        f"another master is using the database {name}",
        "stop that master first, or give this one a database of its own (--data-dir, --database-url)",
        status=503,
    )
