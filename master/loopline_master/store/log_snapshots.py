"""Snapshots of the event log: replay starts at the scheduler's rows in one of them. Also the log's size.

A release may decide differently from the one before, and its migrations convert rows, so replay of an older log would
lead to other rows. An upgrade therefore replaces all snapshots by one of the migrated rows. Each start of the master,
and its steps from time to time, add a snapshot, so that older entries of the log can be deleted. ``loopline replay``
starts at the oldest snapshot.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select, text

from loopline_master.core.snapshot import Snapshot
from loopline_master.store.restart import snapshot
from loopline_master.store.tables import event_log, log_snapshots

SNAPSHOTS = 8
"""Snapshots during the time that the log is kept; they may be large."""

_BYTES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


@cache
def _snapshots() -> TypeAdapter[Snapshot]:
    """Created for the first snapshot: it takes a thirtieth of a master's start."""
    return TypeAdapter(Snapshot)


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """``after``: the last entry of the log before it; 0: the log is replayed from its beginning, without rows."""

    after: int = 0
    at: float = 0.0
    rows: Snapshot | None = None


def restart_log(connection: Connection) -> None:
    """Replace all snapshots by the current rows, because the log does not lead to them."""
    connection.execute(delete(log_snapshots))
    write(connection, time.time())


def is_due(connection: Connection, keep_s: float, now: float) -> bool:
    """True if another snapshot is due."""
    last = connection.scalar(select(func.max(log_snapshots.c.at)))
    since = last if last is not None else connection.scalar(select(func.min(event_log.c.at)))
    return since is not None and since <= now - keep_s / SNAPSHOTS


def write(connection: Connection, now: float) -> None:
    """Store the current rows. The next entry of the log must begin with MasterStarted or SnapshotWritten."""
    last = connection.scalar(select(func.max(event_log.c.seq))) or 0
    known = connection.scalar(select(func.max(log_snapshots.c.after))) or 0
    if last > known:
        text = _snapshots().dump_json(snapshot(connection)).decode()
        connection.execute(insert(log_snapshots).values(after=last, at=now, snapshot=text))


def forget(connection: Connection, keep_s: float, now: float, most: int) -> int:
    """Delete at most ``most`` log entries before the newest snapshot older than ``keep_s``. Return their number.

    From the first call on, replay starts at that snapshot.
    """
    base = connection.scalar(select(func.max(log_snapshots.c.after)).where(log_snapshots.c.at <= now - keep_s))
    if base is None:
        return 0
    connection.execute(delete(log_snapshots).where(log_snapshots.c.after < base))
    first = connection.scalar(select(func.min(event_log.c.seq))) or 0
    return connection.execute(delete(event_log).where(event_log.c.seq <= min(base, first + most - 1))).rowcount


def oldest_snapshot(connection: Connection) -> LogSnapshot:
    """Return the snapshot where replay starts; without one, the beginning of the log."""
    row = connection.execute(select(log_snapshots).order_by(log_snapshots.c.after).limit(1)).one_or_none()
    if row is None:
        return LogSnapshot()
    return LogSnapshot(row.after, row.at, _snapshots().validate_json(row.snapshot))


def as_line(start: LogSnapshot) -> bytes:
    """Return the rows as one line: the first line of an exported log whose beginning was deleted."""
    return _snapshots().dump_json(start.rows or Snapshot()) + b"\n"


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
