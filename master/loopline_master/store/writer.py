"""The only writer: one transaction for each step of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sqlalchemy import Connection, Insert, Table, bindparam, delete, insert, update

from loopline_master.core.effects import Effects
from loopline_master.core.events import BATCH, Batch
from loopline_master.store.audit import audit
from loopline_master.store.broken import StoreBroken
from loopline_master.store.database.transact import Result, Transact
from loopline_master.store.rows import (
    Written,
    disbanded_rows,
    forgotten_rows,
    is_changed,
    late_rows,
    notification_rows,
)
from loopline_master.store.statements import Statement, insert_into
from loopline_master.store.tables import attempts, event_log, gangs, notifications, programs
from loopline_master.store.worker_samples import Sampler
from loopline_shared.model import AttemptState

_SHORT_ROWS = 100


class Writer:
    """Writes steps. After its first failure it refuses to go on: memory may then be ahead of the disk."""

    def __init__(self, write: Transact, sampler: Sampler | None = None) -> None:
        self._write = write
        self._sampler = sampler
        self._written = Written()
        self._broken: StoreBroken | None = None

    async def commit(self, batch: Batch, effects: Effects) -> None:
        """Store a step's events and effects: all of it, or nothing and StoreBroken.

        The effects are read before the first await. A step without events and effects leaves no trace.
        """
        late, completed, forgotten = late_rows(effects), list(effects.completed), forgotten_rows(effects)
        disbanded = disbanded_rows(effects)
        if not (batch.events or late or is_changed(effects)):
            return
        written, ended = self._written.writes(effects), notification_rows(effects)
        sampler = self._sampler
        sampled = sampler.take(effects) if sampler else []
        log = (batch.now, BATCH.serializer.to_json(batch).decode())

        def work(connection: Connection) -> None:
            if forgotten:
                connection.execute(_FORGET, forgotten)
            if disbanded:
                connection.execute(_DISBAND, disbanded)
            for statement, rows in written:
                statement.run(connection, rows)
            if late:
                connection.execute(_ENDED_LATE, late)
            if sampler and sampled:
                sampler.write(connection, sampled)
            if completed:
                audit(connection, completed, batch.now)
            if ended:
                connection.execute(_insert_new(notifications, connection.dialect.name), ended)
            _LOG.run(connection, [log])

        changed = len(completed) + len(late) + len(sampled) + sum(len(rows) for _, rows in written)
        await self.write(work, is_short=changed <= _SHORT_ROWS)

    async def write(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result:
        """Run other work in a transaction of its own. Raises StoreBroken if any of it fails."""
        if self._broken is not None:
            raise self._broken
        try:
            return await self._write(work, is_short=is_short)
        except StoreBroken as broken:
            self._broken = broken
            raise


@cache
def _insert_new(table: Table, dialect: str) -> Insert:
    """Return an INSERT that leaves existing rows as they are."""
    return insert_into(table, dialect).on_conflict_do_nothing(index_elements=list(table.primary_key))


_LOG = Statement(lambda _: insert(event_log).inline().values(at=bindparam("at"), batch=bindparam("batch")))

_FORGET = delete(programs).where(
    programs.c.owner == bindparam("of_owner"),
    programs.c.name == bindparam("of_name"),
    programs.c.folder == bindparam("of_folder"),
)

_DISBAND = delete(gangs).where(gangs.c.job == bindparam("of_job"), gangs.c.task == bindparam("of_task"))

_ENDED_LATE = update(attempts).where(
    attempts.c.job == bindparam("of_job"),
    attempts.c.task == bindparam("of_task"),
    attempts.c.number == bindparam("of_number"),
    attempts.c.worker == bindparam("of_worker"),
    attempts.c.state == AttemptState.LOST,
)
"""A result of an attempt that the scheduler has forgotten: recorded if its row still says lost."""
