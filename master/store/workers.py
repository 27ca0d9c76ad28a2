"""Workers as users see them, with what they have in hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from master.scheduling.model import OCCUPYING
from master.store.database import Transact
from master.store.pages import after, page_of, word
from master.store.tables import attempts, workers
from shared.api import Page, WorkerView
from shared.model import AttemptId


class Workers:
    def __init__(self, read: Transact) -> None:
        self._read = read

    async def page(self, *, cursor: str | None = None, limit: int = 1000) -> Page[WorkerView]:
        """In order of their names."""
        query = select(workers).where(workers.c.name > after(cursor, word, ""))
        views = await self._views(query.order_by(workers.c.name).limit(limit + 1))
        return page_of(views, limit, lambda worker: worker.name)

    async def detail(self, name: str) -> WorkerView | None:
        found = await self._views(select(workers).where(workers.c.name == name))
        return found[0] if found else None

    async def _views(self, query: Select[Any]) -> list[WorkerView]:
        def work(connection: Connection) -> list[WorkerView]:
            rows = connection.execute(query).all()
            in_hand = _in_hand(connection, [row.name for row in rows])
            return [_view(row, in_hand.get(row.name, ())) for row in rows]

        return await self._read(work)


def _in_hand(connection: Connection, names: Iterable[str]) -> dict[str, Sequence[Row[Any]]]:
    """What takes up these workers' slots, by worker."""
    query: Select[Any] = (
        select(attempts.c.worker, attempts.c.job, attempts.c.task, attempts.c.number, attempts.c.slots)
        .where(attempts.c.state.in_(OCCUPYING), attempts.c.worker.in_(names))
        .order_by(attempts.c.worker, attempts.c.job, attempts.c.task, attempts.c.number)
    )
    rows = connection.execute(query)
    return {worker: list(of_worker) for worker, of_worker in groupby(rows, key=lambda row: row.worker)}


def _view(worker: Row[Any], in_hand: Sequence[Row[Any]]) -> WorkerView:
    return WorkerView(
        **worker._mapping,
        connected=worker.session is not None,
        slots=worker.offered,
        slots_used=sum(attempt.slots for attempt in in_hand),
        running=[AttemptId(attempt.job, attempt.task, attempt.number) for attempt in in_hand],
    )
