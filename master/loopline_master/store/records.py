"""Records beside the scheduler's rows: samples of workers, past ETAs, and pending notifications.

No decision depends on them, and a replay of the log does without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import ceil
from typing import Any

from sqlalchemy import Connection, Insert, ScalarSelect, Select, bindparam, delete, func, or_, select, tuple_, update

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import SEATED, Worker
from loopline_master.core.wings.gangs.planning.plan import BROKEN
from loopline_master.store.audit import COMPLETED
from loopline_master.store.database import Transact
from loopline_master.store.rows import insert_into
from loopline_master.store.tables import attempts, forecasts, jobs, notifications, samples, specs
from loopline_shared.model import AttemptState, Load
from loopline_shared.rest.columns import Samples, WorkerSamples
from loopline_shared.spec import Notify

MINUTE_S = 60
_PRUNED_AT_ONCE = 10  # minutes, in each minute: no commit deletes much
Values = dict[str, Any]
_is_here = (attempts.c.worker == bindparam("of_worker")) & attempts.c.ended_at.is_(None)
_slots = func.coalesce(func.sum(attempts.c.slots), 0)
# chains of comparisons: IN (...) could not be sent for many rows at once
_seated = or_(*(attempts.c.state == state for state in SEATED))
_used = select(_slots).where(_is_here, _seated).scalar_subquery()
_frozen = select(_slots).where(_is_here, attempts.c.state == AttemptState.FROZEN).scalar_subquery()
_SUMMED = ("spare_cpu", "slots", "used", "in_use", "frozen")

LOOKED_BACK_ON = 2000
"""Number of the latest ETAs of completed jobs that are compared with the actual ends."""

NotificationKey = tuple[int, int]
"""A job, and the number of its end."""


class Sampler:
    """Takes each worker's first report of a minute, and deletes samples older than ``keep_s``."""

    def __init__(self, keep_s: float) -> None:
        self._keep_minutes = ceil(keep_s / MINUTE_S)
        self._taken: dict[str, int] = {}  # the minute of the latest sample, by worker
        self._pruned = 0  # minute of the last deletion of samples

    def samples_of(self, effects: Effects) -> list[Values]:
        """Return the samples of a step: mostly none."""
        now = effects.grid.now
        for name in effects.gone:
            self._taken.pop(name, None)
        loads = [(one, one.load) for one in effects.workers.values() if one.load and one.reported_at == now]
        return self.of_loads(loads, now) if loads else []

    def of_loads(self, loads: Iterable[tuple[Worker, Load]], now: float) -> list[Values]:
        """Return the samples that are due of these workers, which said this of their loads just now."""
        minute, due = int(now // MINUTE_S), []
        for worker, load in loads:
            if self._taken.get(worker.name) != minute:
                self._taken[worker.name] = minute
                due.append(_sample_of(worker, load, minute))
        return due

    def write(self, connection: Connection, rows: list[Values]) -> None:
        """Write samples after the rows of attempts, whose slots are counted.

        A minute that was sampled before a restart is left as it is.
        """
        connection.execute(_insert_samples(connection.dialect.name), rows)
        minute = rows[0]["minute"]
        if minute != self._pruned:
            self._pruned = minute
            oldest = connection.scalar(select(func.min(samples.c.minute)))
            end = min(minute - self._keep_minutes, oldest + _PRUNED_AT_ONCE)
            connection.execute(delete(samples).where(samples.c.minute < end))


class SampleQueries:
    """Reads samples."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def between(self, since: float, until: float, *, worker: str | None = None, points: int) -> Samples:
        """Return the samples of one worker, or summed over all.

        If there are more minutes than ``points``, each point is the mean of several.
        """
        first, end = int(since // MINUTE_S), ceil(until / MINUTE_S)
        step = max(1, ceil((end - first) / points))
        query = _means(first, end, step, worker)
        rows = await self._read(lambda connection: connection.execute(query).all())
        columns = [[float(value) for value in column] for column in zip(*rows, strict=True)] or [[]] * 7
        at, workers, *rest = columns
        return Samples(
            every_s=step * MINUTE_S,
            at=[minute * MINUTE_S for minute in at],
            workers=workers,
            **dict(zip(_SUMMED, rest, strict=True)),
        )

    async def by_worker(self, since: float, until: float, *, points: int) -> WorkerSamples:
        """Return the samples of each worker, as means over equal parts of the time, of a minute at least."""
        first, end = int(since // MINUTE_S), ceil(until / MINUTE_S)
        step = max(1, ceil((end - first) / points))
        count = max(1, ceil((end - first) / step))
        query = _means_by_worker(first, end, step)
        rows = await self._read(lambda connection: connection.execute(query).all())
        known: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for worker, point, spare_cpu, used in rows:
            spare, in_use = known.setdefault(worker, ([None] * count, [None] * count))
            spare[point], in_use[point] = round(spare_cpu, 2), round(used, 2)
        return WorkerSamples(
            since=first * MINUTE_S,
            every_s=step * MINUTE_S,
            points=count,
            workers=list(known),
            spare_cpu=[spare for spare, _ in known.values()],
            used=[in_use for _, in_use in known.values()],
        )


def _means_by_worker(first: int, end: int, step: int) -> Select[Any]:
    """Return the query for (worker, point, spare CPU, used slots), in the order of workers."""
    point = ((samples.c.minute - first) // step).label("point")
    means = (func.avg(samples.c.spare_cpu), func.avg(samples.c.used))
    within = (samples.c.minute >= first, samples.c.minute < end)
    return (
        select(samples.c.worker, point, *means)
        .where(*within)
        .group_by(samples.c.worker, point)
        .order_by(samples.c.worker)
    )


def _means(first: int, end: int, step: int, worker: str | None) -> Select[Any]:
    """Return the query for (minute, workers, ...): means over ``step`` minutes of sums over workers.

    Minutes without samples do not count.
    """
    sums = [func.sum(samples.c[name]).label(name) for name in _SUMMED]
    each = select(samples.c.minute, func.count().label("workers"), *sums)
    each = each.where(samples.c.minute >= first, samples.c.minute < end).group_by(samples.c.minute)
    if worker is not None:
        each = each.where(samples.c.worker == worker)
    minutes = each.subquery()
    begin = (minutes.c.minute // step) * step
    return (
        select(begin, *(func.avg(column) for column in minutes.c if column.name != "minute"))
        .group_by(begin)
        .order_by(begin)
    )


def _sample_of(worker: Worker, load: Load, minute: int) -> Values:
    return {
        "minute": minute,
        "worker": worker.name,
        "of_worker": worker.name,
        "spare_cpu": load.spare_cpu,
        "slots": worker.offered,
        "in_use": int(load.in_use),
    }


@cache
def _insert_samples(dialect: str) -> Insert:
    statement = insert_into(samples, dialect)
    counted: dict[str, ScalarSelect[Any]] = {"used": _used, "frozen": _frozen}
    return statement.values(counted).on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class ToldEta:
    """An ETA at one moment of a job: as shown to users, and as the model had it before calibration."""

    job: int
    arrival: int
    moment: int
    at: float
    p50_at: float
    p90_at: float
    model_p50_s: float
    model_p90_s: float


@dataclass(frozen=True, slots=True)
class JudgedEta:
    """An ETA, and when its job completed."""

    eta: ToldEta
    completed_at: float


class EtaRecords:
    """Stores ETAs, and reads those whose jobs have completed."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self._read, self._write = read, write

    async def add(self, etas: Iterable[ToldEta]) -> None:
        """Store ETAs. The first one of a moment counts."""
        rows = [asdict(one) for one in etas]
        if rows:
            await self._write(lambda connection: connection.execute(_insert_eta(connection.dialect.name), rows))

    async def judged(self) -> list[JudgedEta]:
        """Return the latest ETAs of jobs that have completed since."""
        query = (
            select(forecasts, jobs.c.finished_at)
            .join_from(forecasts, jobs, (jobs.c.id == forecasts.c.job) & (jobs.c.arrival == forecasts.c.arrival))
            .where(jobs.c.state.in_(COMPLETED))
            .order_by(forecasts.c.at.desc())
            .limit(LOOKED_BACK_ON)
        )
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [JudgedEta(ToldEta(*row[:-1]), row.finished_at) for row in rows]


def _insert_eta(dialect: str) -> Insert:
    insert = insert_into(forecasts, dialect)
    return insert.on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class Due:
    """A notification that is to be sent now."""

    owner: str
    job: int
    departure: int  # which end of the job, or which broken promise: there may be several
    tries: int
    at: float
    state: str  # the job's final state
    notify: Notify

    @property
    def key(self) -> NotificationKey:
        """The key of its row."""
        return self.job, self.departure


class Notifications:
    """Reads the outbox, and records deliveries. ``came`` is set when a step has stored some."""

    def __init__(self, read: Transact, write: Transact) -> None:
        self.came = asyncio.Event()
        self._read, self._write = read, write

    async def due(
        self, now: float, limit: int, limit_user: int, without: Collection[NotificationKey] = ()
    ) -> list[Due]:
        """Return the notifications that are due, except those being sent.

        They are at most ``limit_user`` of each user, and come in turns: the earliest of each, then the second.
        """
        in_hand = tuple_(notifications.c.job, notifications.c.departure).in_(list(without))
        turn = func.row_number().over(partition_by=jobs.c.owner, order_by=notifications.c.next_at)
        waiting = (
            select(notifications, jobs.c.owner, turn.label("turn"))
            .join_from(notifications, jobs, notifications.c.job == jobs.c.id)
            .where(notifications.c.next_at <= now, ~in_hand)
            .subquery()
        )
        query = (
            select(waiting, specs.c.spec)
            .join_from(waiting, specs, waiting.c.job == specs.c.job)
            .where(waiting.c.turn <= limit_user)
            .order_by(waiting.c.turn, waiting.c.next_at)
            .limit(limit)
        )
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [
            Due(
                owner=row.owner,
                job=row.job,
                departure=row.departure,
                tries=row.tries,
                at=row.at,
                state=row.state,
                notify=row.spec.notify,
            )
            for row in rows
        ]

    async def next_after(self, now: float) -> float | None:
        """Return when the next one after ``now`` is due; None if there is none."""
        query = select(notifications.c.next_at).where(notifications.c.next_at > now)
        earliest = query.order_by(notifications.c.next_at).limit(1)
        moment: float | None = await self._read(lambda connection: connection.scalar(earliest))
        return moment

    async def delivered(self, due: Due, now: float) -> None:
        """Record a delivery."""
        await self._record(due, done_at=now, next_at=None, error="", tries=due.tries + 1)

    async def failed(self, due: Due, error: str, next_at: float | None) -> None:
        """Record a failure. ``next_at``: when to try again; None: never."""
        await self._record(due, next_at=next_at, error=error[:500], tries=due.tries + 1)

    async def postpone(self, waiting: Sequence[Due], until: float) -> None:
        """Have notifications wait, without counting a try: their receiver rests."""
        await self._update(waiting, next_at=until)

    async def give_up(self, waiting: Sequence[Due], error: str) -> None:
        """Record that notifications will not be sent any more."""
        await self._update(waiting, next_at=None, error=error)

    async def _update(self, waiting: Sequence[Due], **values: object) -> None:
        keys = tuple_(notifications.c.job, notifications.c.departure).in_([due.key for due in waiting])

        def work(connection: Connection) -> None:
            connection.execute(update(notifications).where(keys).values(**values))

        await self._write(work)

    async def _record(self, due: Due, **values: object) -> None:
        this = (notifications.c.job == due.job, notifications.c.departure == due.departure)

        def work(connection: Connection) -> None:
            connection.execute(update(notifications).where(*this).values(**values))

        await self._write(work)


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
