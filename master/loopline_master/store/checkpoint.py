"""Checkpoint: the place from which an upgraded database's log can be replayed.

A release may decide otherwise than the one before, and rows are converted by its migrations: what the log led to then
cannot be had again by stepping through it now. So an upgrade notes how far the log went, and what the scheduler goes
on from; ``loopline replay`` begins there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select

from loopline_master.core.state import Snapshot
from loopline_master.store.restart import snapshot
from loopline_master.store.tables import event_log, upgrades


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
    """Note that a newer release goes on with this database from here; earlier notes are of no use any more."""
    last = connection.scalar(select(func.max(event_log.c.seq))) or 0
    text = _snapshots().dump_json(snapshot(connection)).decode()
    connection.execute(delete(upgrades))
    if last:
        connection.execute(insert(upgrades).values(after=last, at=time.time(), snapshot=text))


def checkpoint(connection: Connection) -> Checkpoint:
    """Return the last upgrade's; that of a database without one is the beginning of its log."""
    row = connection.execute(select(upgrades)).one_or_none()
    if row is None:
        return Checkpoint()
    return Checkpoint(row.after, row.at, _snapshots().validate_json(row.snapshot))
