"""Workers as users see them, with the attempts on them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, case, func, select

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import OCCUPYING, SEATED, UNSEATED, Worker
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.store.database import Transact
from loopline_master.store.queries.paging import after, page_of, word
from loopline_master.store.rows import SLEEPERS, WORKERS
from loopline_master.store.tables import attempts, sleepers, workers
from loopline_shared.model import AttemptId, AttemptState
from loopline_shared.rest.bodies import LastHour, Page, QuarantineView, SleepView, WorkerView

_HOUR_S = 3600.0


class WorkerQueries:
    """Reads workers."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def page(
        self, *, cursor: str | None = None, limit: int = 1000, last_hour: bool = False
    ) -> Page[WorkerView]:
        """Return a page of workers, by name; with their activity in the ``last_hour`` if asked."""
        query = WORKERS.select().where(workers.c.name > after(cursor, word, ""))
        views = await self._views(query.order_by(workers.c.name).limit(limit + 1), last_hour)
        return page_of(views, limit, lambda worker: worker.name)

    async def detail(self, name: str, *, last_hour: bool = False) -> WorkerView | None:
        """Return a worker; None if there is no such worker."""
        found = await self._views(WORKERS.select().where(workers.c.name == name), last_hour)
        return found[0] if found else None

    async def _views(self, query: Select[Any], last_hour: bool) -> list[WorkerView]:
        def work(connection: Connection) -> list[WorkerView]:
            known = [WORKERS.entity(row) for row in connection.execute(query)]
            names = [worker.name for worker in known]
            in_hand, now = _in_hand(connection, names), time.time()
            did = _last_hour(connection, names, now) if last_hour else {}
            sleeps = _sleeps(connection, names)
            return [
                _view(w, in_hand.get(w.name, ()), sleeps.get(w.name), did.get(w.name), now, last_hour) for w in known
            ]

        return await self._read(work)


def _in_hand(connection: Connection, names: Iterable[str]) -> dict[str, Sequence[Row[Any]]]:
    """Return the attempts that occupy slots of these workers or wait there for one, by worker."""
    columns = ("worker", "job", "task", "number", "slots", "state", "waited_s", "dispatched_at", "expected_s")
    query: Select[Any] = (
        select(*(attempts.c[name] for name in columns))
        .where(attempts.c.worker.in_(names), attempts.c.ended_at.is_(None), attempts.c.state.in_(OCCUPYING))
        .order_by(attempts.c.worker, attempts.c.job, attempts.c.task, attempts.c.number)
    )
    rows = connection.execute(query)
    return {worker: list(of_worker) for worker, of_worker in groupby(rows, key=lambda row: row.worker)}


def _sleeps(connection: Connection, names: Iterable[str]) -> dict[str, SleepView]:
    """Return the sleep of the computers that have slept, by worker."""
    rows = connection.execute(SLEEPERS.select().where(sleepers.c.worker.in_(names)))
    return {row.worker: _sleep_view(SLEEPERS.entity(row)) for row in rows}


def _sleep_view(sleeper: Sleeper) -> SleepView:
    return SleepView(
        since=sleeper.asleep_since,
        kind=sleeper.kind,
        by=sleeper.by,
        can_be_woken=not sleeper.obstacle,
        obstacle=sleeper.obstacle,
        wake_sent_at=sleeper.waking_since,
        last_wake_at=sleeper.last_wake_at,
        failed_wakes=sleeper.failed_wakes,
        woken_at=sleeper.woken_at,
        wake=sleeper.wake,
    )


def _last_hour(connection: Connection, names: Iterable[str], now: float) -> dict[str, Row[Any]]:
    """Return the sums over attempts that ended on these workers in the last hour, by worker."""
    within = case((attempts.c.wall_s > _HOUR_S, _HOUR_S / attempts.c.wall_s), else_=1.0)
    query: Select[Any] = (
        select(
            attempts.c.worker,
            func.sum(case((attempts.c.accepted, attempts.c.work * within), else_=0.0)).label("used"),
            func.sum(attempts.c.wall_s * attempts.c.slots * within).label("slot_s"),
            func.sum(case((attempts.c.accepted, 1), else_=0)).label("tasks"),
        )
        .where(attempts.c.ended_at >= now - _HOUR_S, attempts.c.worker.in_(names))
        .group_by(attempts.c.worker)
    )
    return {row.worker: row for row in connection.execute(query)}


def _view(
    worker: Worker, in_hand: Sequence[Row[Any]], sleep: SleepView | None, did: Row[Any] | None,
    now: float, last_hour: bool,
) -> WorkerView:  # fmt: skip
    speed, until = measure.speed_of(worker), worker.quarantined_until
    fields = (
        "name",
        "draining",
        "drain_reason",
        "facts",
        "load",
        "joined_at",
        "reported_at",
        "mismatches",
        "overstated",
    )
    quarantine = None if until is None else QuarantineView(until=until, reason=worker.quarantine_reason)
    return WorkerView(
        **{name: getattr(worker, name) for name in fields},
        lease_until=worker.given_up_at,
        connected=worker.session is not None,
        slots=worker.offered,
        slots_used=sum(attempt.slots for attempt in in_hand if attempt.state in SEATED),
        running=[_id(attempt) for attempt in in_hand if attempt.state in SEATED],
        waiting=[_id(attempt) for attempt in in_hand if attempt.state in UNSEATED],
        delivering=[_id(attempt) for attempt in in_hand if attempt.state is AttemptState.DELIVERING],
        speed=speed,
        health=worker.health,
        quarantine=quarantine,
        half_open=worker.half_open,
        sleep=sleep,
        queue_s=sum(_left_s(attempt, now) for attempt in in_hand),
        last_hour=_last_hour_of(did, speed * worker.offered * _HOUR_S) if last_hour else None,
    )


def _left_s(attempt: Row[Any], now: float) -> float:
    """Return the expected remaining time of an attempt; 0 if it has ended, or is late and may end at any moment."""
    if attempt.state in UNSEATED:
        return float(attempt.expected_s)
    if attempt.state is AttemptState.DELIVERING:
        return 0.0
    return max(0.0, float(attempt.dispatched_at + attempt.waited_s + attempt.expected_s - now))


def _last_hour_of(did: Row[Any] | None, offered: float) -> LastHour:
    used, slot_s, tasks = (did.used, did.slot_s, did.tasks) if did is not None else (0.0, 0.0, 0)
    return LastHour(used=used, offered=offered, share=used / offered if offered else None, slot_s=slot_s, tasks=tasks)


def _id(attempt: Row[Any]) -> AttemptId:
    return AttemptId(attempt.job, attempt.task, attempt.number)
