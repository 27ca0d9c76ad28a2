"""Samples of workers, one a minute: written by the commit that carries their report, and kept for a while.

The table is a projection: no decision depends on it, and a replay of the log does without it.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

from sqlalchemy import Connection, Insert, ScalarSelect, Select, bindparam, delete, func, or_, select

from loopline_master.core.effects import Effects
from loopline_master.core.entities import SEATED, Worker
from loopline_master.store.database.transact import Transact
from loopline_master.store.statements import insert_into
from loopline_master.store.tables import attempts, samples
from loopline_shared.model import AttemptState
from loopline_shared.rest.columns import Samples

MINUTE_S = 60
_PRUNED_AT_ONCE = 10  # minutes, in each minute: no commit deletes much
Values = dict[str, Any]

_is_here = attempts.c.worker == bindparam("of_worker")
_slots = func.coalesce(func.sum(attempts.c.slots), 0)
# chains of comparisons: IN (...) could not be sent for many rows at once
_seated = or_(*(attempts.c.state == state for state in SEATED))
_used = select(_slots).where(_is_here, _seated).scalar_subquery()
_frozen = select(_slots).where(_is_here, attempts.c.state == AttemptState.FROZEN).scalar_subquery()
_SUMMED = ("spare_cpu", "slots", "used", "in_use", "frozen")


class Sampler:
    """Takes each worker's first report of a minute, and deletes samples older than ``keep_s``."""

    def __init__(self, keep_s: float) -> None:
        self._keep_minutes = ceil(keep_s / MINUTE_S)
        self._taken: dict[str, int] = {}  # the minute of the latest sample, by worker
        self._pruned = 0  # the minute in which samples were last deleted

    def take(self, effects: Effects) -> list[Values]:
        """Return the samples of a step: mostly none."""
        now = effects.grid.now
        minute = int(now // MINUTE_S)
        reported = [worker for worker in effects.workers.values() if worker.reported_at == now]
        due = [worker for worker in reported if self._taken.get(worker.name) != minute]
        self._taken.update((worker.name, minute) for worker in due)
        return [_row(worker, minute) for worker in due if worker.load]

    def write(self, connection: Connection, rows: list[Values]) -> None:
        """Write samples after the rows of attempts, whose slots are counted.

        A minute that was sampled before a restart is left as it is.
        """
        connection.execute(_insert(connection.dialect.name), rows)
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


def _row(worker: Worker, minute: int) -> Values:
    assert worker.load
    return {
        "minute": minute,
        "worker": worker.name,
        "of_worker": worker.name,
        "spare_cpu": worker.load.spare_cpu,
        "slots": worker.offered,
        "in_use": int(worker.load.in_use),
    }


@cache
def _insert(dialect: str) -> Insert:
    statement = insert_into(samples, dialect)
    counted: dict[str, ScalarSelect[Any]] = {"used": _used, "frozen": _frozen}
    return statement.values(counted).on_conflict_do_nothing()
