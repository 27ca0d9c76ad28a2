"""Failures of a job, grouped by their common text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.task_queries import TOLD_BY
from loopline_master.store.tables import attempts, tasks
from loopline_shared.model import AttemptState, TaskState

MOST_READ = 10_000
"""So many different ends are read, the most frequent first."""

_MOST_KEPT, _FEW = 100, 100
"""Jobs whose failures are kept, and groups of each: little, for which hundreds of thousands of rows may be read."""

_COUNT = func.count().label("times")
_ENDS = (
    select(
        attempts.c.exit_code, tasks.c.verdict, attempts.c.reason, _COUNT, func.min(tasks.c.number).label("example")
    )
    .outerjoin_from(tasks, attempts, TOLD_BY)
    .where(tasks.c.job == bindparam("of_job"), tasks.c.state == TaskState.FAILED)
    .group_by(attempts.c.exit_code, tasks.c.verdict, attempts.c.reason)
    .order_by(_COUNT.desc(), func.min(tasks.c.number))
    .limit(MOST_READ)
)
_LOST = (
    select(tasks.c.number)
    .join_from(attempts, tasks, TOLD_BY)
    .where(attempts.c.job == bindparam("of_job"), attempts.c.state == AttemptState.LOST)
    .where(tasks.c.state == TaskState.FAILED)
    .limit(1)
)
"""A task whose worker may still come back, and say another reason."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks of a job with one exit code, and one reason but for the numbers in it."""

    exit_code: int | None
    reason: str  # of the example, which mostly is the last line of its stderr
    count: int
    example: int  # the number of such a task


class FailureQueries:
    """Reads the failures of jobs; those of ended jobs only once."""

    def __init__(self, read: Transact) -> None:
        self._read = read
        self._kept: dict[tuple[int, float], list[FailureGroup]] = {}

    async def of_job(self, job: int, finished_at: float | None = None) -> list[FailureGroup]:
        """Return the failures of a job, the most frequent first.

        ``finished_at``: of a job that is over, whose failures stay as they are until it is retried.
        """
        if finished_at is not None and (job, finished_at) in self._kept:
            return self._kept[job, finished_at]

        def work(connection: Connection) -> tuple[list[FailureGroup], bool]:
            may_change = finished_at is None or connection.execute(_LOST, {"of_job": job}).first() is not None
            return _groups(connection, job), may_change

        groups, may_change = await self._read(work)
        if finished_at is not None and not may_change and len(groups) <= _FEW:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[job, finished_at] = groups
        return groups


def _groups(connection: Connection, job: int) -> list[FailureGroup]:
    groups: dict[tuple[int | None, str], FailureGroup] = {}
    for row in connection.execute(_ENDS, {"of_job": job}):
        found = FailureGroup(row.exit_code, row.verdict or row.reason or "", row.times, row.example)
        key = found.exit_code, _NUMBER.sub("#", found.reason)
        first = groups.setdefault(key, found)
        if first is not found:
            groups[key] = replace(first, count=first.count + found.count)
    return sorted(groups.values(), key=lambda group: (-group.count, group.example))
