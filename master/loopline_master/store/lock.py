"""A lock that lets only one master use a database: two would contradict one another.

It ends with its process, however that ends. On PostgreSQL it belongs to the connection that writes, so that a
master that lost its lock cannot write either.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sqlalchemy import func, select

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


_ADVISORY_KEY = int.from_bytes(b"loopline")


class FileLock:
    """A locked file beside the database file. Closing it unlocks; the file stays, since removing it would let two
    in.
    """

    def __init__(self, database: Path) -> None:
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


async def lock_connection(writer: AsyncConnection, name: str) -> None:
    """Take PostgreSQL's lock, which is held for as long as this connection is open."""
    locked = await writer.scalar(select(func.pg_try_advisory_lock(_ADVISORY_KEY)))
    await writer.commit()
    if not locked:
        raise _in_use(name)


def _in_use(name: str) -> LooplineError:
    return LooplineError(
        "database_in_use",
        f"another master is using the database {name}",
        "stop that master first, or give this one a database of its own (--data-dir, --database-url)",
        status=503,
    )
