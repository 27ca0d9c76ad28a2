"""Files that users uploaded, and how much of them each has here."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from loopline_master.store.database import Transact
from loopline_master.store.tables import uploads

_REMOVE = delete(uploads).where(uploads.c.sha256 == bindparam("gone"))


class Uploads:
    """Stores who brought which file."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def bytes_by_user(self) -> dict[str, int]:
        """Return the bytes of the files that each user has here."""
        query = select(uploads.c.owner, func.sum(uploads.c.bytes)).group_by(uploads.c.owner)
        return {
            owner: int(total) for owner, total in await self._read(lambda connection: connection.execute(query).all())
        }

    async def add(self, sha256: str, owner: str, size_bytes: int) -> bool:
        """Store that a user brought a file. Returns False if it was counted before."""
        row = {"sha256": sha256, "owner": owner, "bytes": size_bytes}

        def work(connection: Connection) -> bool:
            if connection.execute(select(uploads.c.owner).where(uploads.c.sha256 == sha256)).first():
                return False
            connection.execute(insert(uploads), row)
            return True

        return await self._write(work)

    async def remove(self, names: Sequence[str]) -> None:
        """Store that files are no longer here."""
        rows = [{"gone": name} for name in names]
        await self._write(lambda connection: connection.execute(_REMOVE, rows))
