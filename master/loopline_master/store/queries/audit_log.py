"""The audit log: who did what, from where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, number, page_of
from loopline_master.store.tables import audit_log
from loopline_shared.model import MAX_ID
from loopline_shared.rest.access import AuditEntry
from loopline_shared.rest.bodies import Page


class AuditLog:
    """Stores what was done, and forgets it after some time."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def note(self, deed: Mapping[str, Any], keep_s: float) -> None:
        """Store a deed (the fields of an AuditEntry but its id), and forget those that are older by ``keep_s``."""

        def work(connection: Connection) -> None:
            connection.execute(insert(audit_log), deed)
            connection.execute(delete(audit_log).where(audit_log.c.at < deed["at"] - keep_s))

        await self._write(work)

    async def page(
        self, *, who: str | None = None, since: float = 0.0, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditEntry]:
        """Return a page of entries, the latest first."""
        before = after(cursor, number, MAX_ID)
        query: Any = select(audit_log).where(audit_log.c.id < before, audit_log.c.at >= since)
        if who is not None:
            query = query.where(audit_log.c.who == who)
        query = query.order_by(audit_log.c.id.desc()).limit(limit + 1)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return page_of([AuditEntry(**row._mapping) for row in rows], limit, lambda entry: entry.id)
