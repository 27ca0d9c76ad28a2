"""The outbox of notifications: a row for each of which a user asked to be told, kept until it has been delivered.

It is the end of a job, or a promised start that was not kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, select, tuple_, update

from loopline_master.core.planning.plan import BROKEN
from loopline_master.store.database.transact import Transact
from loopline_master.store.tables import notifications, specs
from loopline_master.store.writer import Writer
from loopline_shared.spec import Notify

Key = tuple[int, int]
"""A job, and the number of its end."""


@dataclass(frozen=True, slots=True)
class Due:
    """A notification that is to be sent now."""

    job: int
    departure: int  # which end of the job, or which broken promise: there may be several
    tries: int
    at: float
    state: str  # the state in which the job ended
    notify: Notify

    @property
    def key(self) -> Key:
        """The key of its row."""
        return self.job, self.departure


class Notifications:
    """Reads the outbox, and records deliveries."""

    def __init__(self, read: Transact, writer: Writer) -> None:
        self._read = read
        self._writer = writer

    async def due(self, now: float, limit: int, without: Collection[Key] = ()) -> list[Due]:
        """Return the notifications that are due, the earliest first, without those that are being sent."""
        in_hand = tuple_(notifications.c.job, notifications.c.departure).in_(list(without))
        waiting = (notifications.c.next_at <= now) & ~in_hand
        query = (
            select(notifications, specs.c.spec)
            .join_from(notifications, specs, notifications.c.job == specs.c.job)
            .where(waiting)
            .order_by(notifications.c.next_at)
            .limit(limit)
        )
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [
            Due(
                job=row.job,
                departure=row.departure,
                tries=row.tries,
                at=row.at,
                state=row.state,
                notify=row.spec.notify,
            )
            for row in rows
        ]

    async def next_at(self) -> float | None:
        """Return when the next one is due; None if none is waiting."""
        query = select(notifications.c.next_at).where(notifications.c.next_at.is_not(None))
        earliest = query.order_by(notifications.c.next_at).limit(1)
        moment: float | None = await self._read(lambda connection: connection.scalar(earliest))
        return moment

    async def delivered(self, due: Due, now: float) -> None:
        """Record a delivery."""
        await self._record(due, done_at=now, next_at=None, error="", tries=due.tries + 1)

    async def failed(self, due: Due, error: str, next_at: float | None) -> None:
        """Record a failure. ``next_at``: when to try again; None: never."""
        await self._record(due, next_at=next_at, error=error[:500], tries=due.tries + 1)

    async def _record(self, due: Due, **values: object) -> None:
        this = (notifications.c.job == due.job, notifications.c.departure == due.departure)

        def work(connection: Connection) -> None:
            connection.execute(update(notifications).where(*this).values(**values))

        await self._writer.write(work)


def notified(connection: Connection, job: int) -> str:
    """Return the state of the notification of a job's latest end, in words; empty if none was asked for."""
    ends = (notifications.c.job == job, notifications.c.state != BROKEN)
    query = select(notifications).where(*ends).order_by(notifications.c.departure.desc())
    row = connection.execute(query.limit(1)).first()
    if row is None:
        return ""
    if row.done_at is not None:
        return "told"
    tried = f" after {row.tries} tries: {row.error}" if row.tries else ""
    return f"waiting{tried}" if row.next_at is not None else f"given up{tried}"
