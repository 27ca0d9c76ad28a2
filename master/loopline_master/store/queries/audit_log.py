"""The audit log: users, operations and addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Integer, bindparam, delete, insert, literal_column, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, number, page_of
from loopline_master.store.rows import Statement, Write, run
from loopline_master.store.tables import audit_log
from loopline_shared.model import MAX_ID
from loopline_shared.rest.access import AuditEntry
from loopline_shared.rest.bodies import Page

_COLUMNS = ("at", "who", "role", "token", "address", "did", "on")
_NOTE = Statement(lambda _: insert(audit_log).inline().values({name: bindparam(name) for name in _COLUMNS}))
_AT_ONCE = 100
"""Old entries deleted with each new one, at most: a step does not wait for all of them if retention is shortened."""


def _literal(number: int) -> ColumnElement[int]:
    """Return a number in the text of a statement, which has no place for its value."""
    return literal_column(str(number), Integer)


_old = select(audit_log.c.id).where(audit_log.c.at < bindparam("since")).order_by(audit_log.c.at)
_oldest = _old.limit(_literal(_AT_ONCE)).offset(_literal(0))  # SQLite's text has one in any case
_FORGET = Statement(lambda _: delete(audit_log).where(audit_log.c.id.in_(_oldest)))
_values = attrgetter(*_COLUMNS)


@dataclass(slots=True)
class AuditedAction:
    """An operation of a user, recorded once it is done, in the same transaction if possible.

    It has the fields of an AuditEntry without its id. Recording it deletes some older entries.
    """

    at: float
    who: str
    role: str
    token: str
    address: str
    did: str
    on: str
    forgets_before: float  # entries earlier than this are deleted
    is_noted: bool = False


def noted(actions: Sequence[AuditedAction]) -> list[Write]:
    """Return the writes of these operations."""
    if not actions:
        return []
    forgotten_before = max(action.forgets_before for action in actions)
    return [(_NOTE, [_values(action) for action in actions]), (_FORGET, [(forgotten_before,)])]


class AuditLog:
    """Stores what was done, and forgets it after some time."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def note(self, action: AuditedAction) -> None:
        """Store an operation that no step has stored."""
        await self._write(lambda connection: run(connection, noted([action])), is_short=True)

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
