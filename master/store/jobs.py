"""Jobs as users see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select

from master.store.database import Transact
from master.store.ledgers import LATE, ledger_of
from master.store.notifications import notified
from master.store.pages import after, number, page_of
from master.store.tables import jobs, specs
from shared.api import Counts, JobDetail, JobView, Page
from shared.model import MAX_ID, JobState, TaskState

_VIEW: Select[Any] = select(jobs, specs.c.name, *LATE).join_from(jobs, specs)
_ONE = _VIEW.where(jobs.c.id == bindparam("of_job"))  # made once: these are asked for with every task
_DETAIL = _ONE.add_columns(specs.c.spec)
_BY_KEY = select(jobs.c.id).where(
    jobs.c.owner == bindparam("of_owner"), jobs.c.idempotency_key == bindparam("of_key")
)


class Jobs:
    def __init__(self, read: Transact, look: Transact) -> None:
        self._read = read
        self._look = look

    async def page(
        self,
        *,
        state: JobState | None = None,
        owner: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[JobView]:
        """Newest first."""
        before = after(cursor, number, MAX_ID)
        query = _VIEW.where(jobs.c.id < before).order_by(jobs.c.id.desc()).limit(limit + 1)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if owner is not None:
            query = query.where(jobs.c.owner == owner)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return page_of([JobView(**_fields(row)) for row in rows], limit, lambda job: job.id)

    async def view(self, job: int) -> JobView | None:
        """A job without its spec, which may be large."""
        row = await self._read(lambda connection: connection.execute(_ONE, {"of_job": job}).one_or_none())
        return None if row is None else JobView(**_fields(row))

    async def detail(self, job: int) -> JobDetail | None:
        return await self._read(lambda connection: _read_detail(connection, job))

    async def by_key(self, owner: str, idempotency_key: str) -> JobDetail | None:
        """What its owner submitted under this key."""
        values = {"of_owner": owner, "of_key": idempotency_key}
        job = await self._look(lambda connection: connection.scalar(_BY_KEY, values))
        return None if job is None else await self.detail(job)

    async def states(self, numbers: Iterable[int]) -> dict[int, JobState]:
        """Those of them that there are."""
        query = select(jobs.c.id, jobs.c.state).where(jobs.c.id.in_(set(numbers)))
        rows = await self._read(lambda connection: connection.execute(query).all())
        return {row.id: row.state for row in rows}


def _read_detail(connection: Connection, job: int) -> JobDetail | None:
    row = connection.execute(_DETAIL, {"of_job": job}).one_or_none()
    return None if row is None else JobDetail(**_fields(row), notification=notified(connection, row.id))


def state_of_absent(job: Row[Any]) -> TaskState:
    """The state of a job's tasks that have no row, because they were never started."""
    return TaskState.QUEUED if job.departure is None else TaskState.CANCELLED


def _fields(job: Row[Any]) -> dict[str, Any]:
    is_held = job.departure is None and job.held_at is not None and job.released_at is None
    return {**job._mapping, "tasks": _counts(job), "held": is_held, "ledger": ledger_of(job)}


def _counts(job: Row[Any]) -> Counts:
    ended = {"running": job.running, "succeeded": job.succeeded, "failed": job.failed}
    return Counts(**ended, **{state_of_absent(job): job.task_count - sum(ended.values())})
