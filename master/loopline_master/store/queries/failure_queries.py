"""Failures of a job, or of many jobs, grouped by their common text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, or_, select

from loopline_master.store.database import Transact
from loopline_master.store.queries.attempt_queries import why_failed
from loopline_master.store.queries.task_queries import SPEC, TOLD_BY
from loopline_master.store.row_source import Rows, no_rows
from loopline_master.store.tables import attempts, jobs, tasks
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import AttemptState, TaskId, TaskState
from loopline_shared.rest.bodies import FailureKind, FailureReport
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import Sweep

MOST_READ = 10_000
"""Most different ends that are read, most frequent first."""

_MOST_KEPT, _FEW = 100, 100
"""Jobs whose failures are cached, and groups of each: small results of hundreds of thousands of rows."""

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


_JOBS = select(jobs.c.id, jobs.c.finished_at).where(jobs.c.failed > 0).order_by(jobs.c.id.desc())


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks of a job with one exit code, and one reason but for numbers and the task's own parameters."""

    exit_code: int | None
    reason: str  # of the example, which mostly is the last line of its stderr
    count: int
    example: int  # the number of such a task
    pattern: str = ""  # the reason without numbers, and with names of parameters for their values

    @property
    def key(self) -> tuple[int | None, str]:
        """The part of it that other failures of the same kind share."""
        return self.exit_code, self.pattern or _NUMBER.sub("#", self.reason)


class FailureQueries:
    """Reads the failures of jobs; those of ended jobs only once."""

    def __init__(self, read: Transact) -> None:
        self._read = read
        self._kept: dict[tuple[int, float], list[FailureGroup]] = {}

    async def of_job(self, job: int, finished_at: float | None = None, rows: Rows = no_rows) -> list[FailureGroup]:
        """Return the failures of a job, the most frequent first.

        ``finished_at``: of a job that is over, whose failures stay as they are until it is retried.
        ``rows``: where to read the lines of its row file.
        """
        if finished_at is not None and (job, finished_at) in self._kept:
            return self._kept[job, finished_at]

        def work(connection: Connection) -> tuple[list[FailureGroup], JobSpec | None, bool]:
            may_change = finished_at is None or connection.execute(_LOST, {"of_job": job}).first() is not None
            groups = _merged(_ends(connection, job))
            spec = connection.execute(SPEC, {"of_job": job}).scalar_one() if groups else None
            return groups, spec, may_change

        groups, spec, may_change = await self._read(work)
        if spec is not None and (spec.parameters or spec.tasks):
            lines = await rows(spec, [group.example for group in groups])
            groups = await asyncio.to_thread(_merged_by_task, groups, spec, lines)
        if finished_at is not None and not may_change and len(groups) <= _FEW:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[job, finished_at] = groups
        return groups

    async def across_jobs(
        self, *, owner: str | None, since: float, most_jobs: int, rows: Rows = no_rows
    ) -> FailureReport:
        """Return the failures of the latest jobs with failed tasks that ended since then, or have not ended."""
        query = _JOBS.where(or_(jobs.c.finished_at.is_(None), jobs.c.finished_at >= since)).limit(most_jobs + 1)
        if owner is not None:
            query = query.where(jobs.c.owner == owner)
        found = await self._read(lambda connection: connection.execute(query).all())
        kinds: dict[tuple[int | None, str], FailureKind] = {}
        for job, finished_at in found[:most_jobs]:
            for group in await self.of_job(job, finished_at, rows):
                kinds[group.key] = _with(kinds.get(group.key), job, group)
        return FailureReport(
            kinds=sorted(kinds.values(), key=lambda kind: (-kind.tasks, kind.example)),
            job_count=len(found[:most_jobs]),
            truncated=len(found) > most_jobs,
        )


def _with(kind: FailureKind | None, job: int, group: FailureGroup) -> FailureKind:
    """Return the kind with one more job; jobs are added from the latest to the earliest."""
    if kind is None:
        reason = group.reason or why_failed(AttemptState.FAILED, group.exit_code)
        example = TaskId(job, group.example)
        return FailureKind(exit_code=group.exit_code, reason=reason, tasks=group.count, jobs=[job], example=example)
    return kind.model_copy(update={"tasks": kind.tasks + group.count, "jobs": [*kind.jobs, job]})


def _ends(connection: Connection, job: int) -> Iterator[FailureGroup]:
    for row in connection.execute(_ENDS, {"of_job": job}):
        yield FailureGroup(row.exit_code, row.verdict or row.reason or "", row.times, row.example)


def _merged(ends: Iterable[FailureGroup], neutral: Callable[[FailureGroup], str] | None = None) -> list[FailureGroup]:
    """Return groups of equal exit code and reason, apart from numbers; ``neutral`` returns the reason to compare."""
    groups: dict[tuple[int | None, str], FailureGroup] = {}
    for found in ends:
        pattern = _NUMBER.sub("#", neutral(found) if neutral else found.reason)
        key = found.exit_code, pattern
        first = groups.setdefault(key, replace(found, pattern=pattern))
        if first.example != found.example:
            groups[key] = replace(groups[key], count=groups[key].count + found.count)
    return sorted(groups.values(), key=lambda group: (-group.count, group.example))


def _merged_by_task(
    groups: Sequence[FailureGroup], spec: JobSpec, lines: Mapping[int, Mapping[str, Scalar]]
) -> list[FailureGroup]:
    """Merge groups whose reasons differ only by the parameters of their tasks, such as a file's name."""
    sweep, is_listed = Sweep(spec), not isinstance(spec.parameters, RowFile)

    def neutral(group: FailureGroup) -> str:
        own = sweep.parameters_at(group.example) if is_listed else lines.get(group.example, {})
        return without_own(group.reason, own)

    return _merged(groups, neutral)


def without_own(reason: str, parameters: Mapping[str, Scalar]) -> str:
    """Return a reason with the names of its task's parameters in place of their values, and of files they name."""
    named: dict[str, str] = {}
    for name, value in parameters.items():
        if isinstance(value, str) and value:
            base = value.replace("\\", "/").rpartition("/")[2]
            named |= {text: name for text in (value, base) if re.search(r"\w", text)}
    if not named:
        return reason
    texts = "|".join(re.escape(text) for text in sorted(named, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{texts})(?!\w)", lambda found: f"{{{named[found[0]]}}}", reason)
