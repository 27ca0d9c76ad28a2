"""Checkpoint: a starting point for replays of the log, with a snapshot of the scheduler's rows.

A release may decide differently from the one before, and its migrations convert rows, so stepping through an older
log would lead to other rows. So an upgrade stores the end of the log and the rows to continue with.
A start of the master notes the same from time to time, and so does a step while it runs: then the log before can be
forgotten. ``loopline replay`` begins at the oldest checkpoint. How large the log is then stands here, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select, text

from loopline_master.core.snapshot import Snapshot
from loopline_master.store.restart import snapshot
from loopline_master.store.tables import event_log, upgrades

CHECKPOINTS = 8
"""Most checkpoints during the time that the log is kept, because snapshots may be large."""

_BYTES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


@cache
def _snapshots() -> TypeAdapter[Snapshot]:
    """Made at the first checkpoint: it takes a thirtieth of a master's start."""
    return TypeAdapter(Snapshot)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``after``: the last entry of the log before it; 0: the log is replayed from its beginning."""

    after: int = 0
    at: float = 0.0
    snapshot: Snapshot | None = None


def note_upgrade(connection: Connection) -> None:
    """Store a checkpoint for a release that continues with this database, and delete the earlier ones."""
    connection.execute(delete(upgrades))
    note(connection, time.time())


def is_due(connection: Connection, keep_s: float, now: float) -> bool:
    """True if the last checkpoint is so old that another one is due."""
    last = connection.scalar(select(func.max(upgrades.c.at)))
    since = last if last is not None else connection.scalar(select(func.min(event_log.c.at)))
    return since is not None and since <= now - keep_s / CHECKPOINTS


def note(connection: Connection, now: float) -> None:
    """Store the current rows: the next entry of the log must be the first of a scheduler that continues from them.

    So a MasterStarted follows, or a Checkpointed.
    """
    last = connection.scalar(select(func.max(event_log.c.seq))) or 0
    known = connection.scalar(select(func.max(upgrades.c.after))) or 0
    if last > known:
        text = _snapshots().dump_json(snapshot(connection)).decode()
        connection.execute(insert(upgrades).values(after=last, at=now, snapshot=text))


def forget(connection: Connection, keep_s: float, now: float, most: int) -> int:
    """Forget the log before the newest checkpoint older than ``keep_s``: at most ``most`` entries. Return their
    number.

    A replay begins at that checkpoint from the first call on.
    """
    base = connection.scalar(select(func.max(upgrades.c.after)).where(upgrades.c.at <= now - keep_s))
    if base is None:
        return 0
    connection.execute(delete(upgrades).where(upgrades.c.after < base))
    first = connection.scalar(select(func.min(event_log.c.seq))) or 0
    return connection.execute(delete(event_log).where(event_log.c.seq <= min(base, first + most - 1))).rowcount


def checkpoint(connection: Connection) -> Checkpoint:
    """Return the oldest; that of a database without one is the beginning of its log."""
    row = connection.execute(select(upgrades).order_by(upgrades.c.after).limit(1)).one_or_none()
    if row is None:
        return Checkpoint()
    return Checkpoint(row.after, row.at, _snapshots().validate_json(row.snapshot))


def as_line(start: Checkpoint) -> bytes:
    """Return what the scheduler went on from, as one line: the first of a log whose beginning was forgotten."""
    return _snapshots().dump_json(start.snapshot or Snapshot()) + b"\n"


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
