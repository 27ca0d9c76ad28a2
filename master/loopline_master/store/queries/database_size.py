"""The size of the database, and of the event log in it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from loopline_master.store.tables import event_log

_BYTES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """Bytes of the whole database, and entries of its event log, with the time of its first (None: it is empty)."""

    total_bytes: int
    log_entries: int
    log_began_at: float | None


def size_of(connection: Connection) -> DatabaseSize:
    """Return the size, without reading more than the ends of the log."""
    total = connection.execute(_BYTES[connection.dialect.name]).scalar_one()
    first, last = connection.execute(select(func.min(event_log.c.seq), func.max(event_log.c.seq))).one()
    since = connection.scalar(select(event_log.c.at).where(event_log.c.seq == first))
    return DatabaseSize(int(total), 0 if first is None else last - first + 1, since)
