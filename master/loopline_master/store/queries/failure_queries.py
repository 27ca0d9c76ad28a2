"""Failures of a job, grouped by what they have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.task_queries import TOLD_BY
from loopline_master.store.tables import attempts, tasks
from loopline_shared.model import TaskState

MOST_READ = 10_000
"""So many different ends are read, the most frequent first."""

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
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks of a job with one exit code, and one reason but for the numbers in it."""

    exit_code: int | None
    reason: str  # of the example, which mostly is the last line of its stderr
    count: int
    example: int  # the number of such a task


class FailureQueries:
    """Reads the failures of jobs."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def of_job(self, job: int) -> list[FailureGroup]:
        """Return the failures of a job, the most frequent first."""
        return await self._read(lambda connection: _groups(connection, job))


def _groups(connection: Connection, job: int) -> list[FailureGroup]:
    groups: dict[tuple[int | None, str], FailureGroup] = {}
    for row in connection.execute(_ENDS, {"of_job": job}):
        found = FailureGroup(row.exit_code, row.verdict or row.reason or "", row.times, row.example)
        key = found.exit_code, _NUMBER.sub("#", found.reason)
        first = groups.setdefault(key, found)
        if first is not found:
            groups[key] = replace(first, count=first.count + found.count)
    return sorted(groups.values(), key=lambda group: (-group.count, group.example))
