"""Tasks as users see them. A task that was never started has no row: it is derived from its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, exists, func, select

from loopline_master.core.kernel.entities import UNSEATED
from loopline_master.store.database import Transact
from loopline_master.store.queries.attempt_queries import RESUMED, RESUMES, attempts_of_task, resumed_view, why_failed
from loopline_master.store.queries.job_queries import state_of_absent
from loopline_master.store.queries.paging import after, number, page_of
from loopline_master.store.row_source import Rows, no_rows
from loopline_master.store.tables import attempts, jobs, resumptions, specs, tasks
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import Output, TaskId, TaskState
from loopline_shared.rest.bodies import AttemptView, Page, TaskDetail, TaskView, VoteView
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import Sweep, task_at

TOLD_BY = and_(  # the attempt that describes a task: the winner, else the latest
    attempts.c.job == tasks.c.job,
    attempts.c.task == tasks.c.number,
    attempts.c.number == func.coalesce(tasks.c.winner, tasks.c.attempts),
)
TASK_ROWS = select(
    tasks, attempts.c.worker, attempts.c.exit_code, attempts.c.reason, attempts.c.wall_s,
    attempts.c.started_at.label("began_at"), attempts.c.ended_at, attempts.c.state.label("attempt_state"),
    attempts.c.metrics, *RESUMED,
).outerjoin_from(tasks, attempts, TOLD_BY).outerjoin(resumptions, RESUMES)  # fmt: skip
_SWEEP = (
    select(
        tasks.c.number, tasks.c.state, tasks.c.failures, tasks.c.verdict,
        attempts.c.worker, attempts.c.started_at, attempts.c.ended_at, attempts.c.wall_s,
        attempts.c.exit_code, attempts.c.reason, attempts.c.state.label("attempt_state"), attempts.c.metrics,
    ).outerjoin_from(tasks, attempts, TOLD_BY)
    .where(tasks.c.job == bindparam("of_job"), tasks.c.number <= bindparam("most"))
)  # fmt: skip
_OUTPUTS = (
    select(tasks.c.number, attempts.c.stdout, attempts.c.stderr)
    .join_from(tasks, attempts, TOLD_BY)
    .where(attempts.c.stdout.is_not(None))
    .order_by(tasks.c.number)
)
SPEC = select(specs.c.spec).where(specs.c.job == bindparam("of_job"))


@dataclass(frozen=True, slots=True)
class SweepTasks:
    """The first ``count`` tasks of a job: their rows, or the state of those without one."""

    spec: JobSpec
    count: int
    truncated: bool
    rows: Mapping[int, Row[Any]]
    absent: TaskState
    lines: Mapping[int, Mapping[str, Scalar]]  # of the job's row file


@dataclass(frozen=True, slots=True)
class TaskOutputs:
    """Output of the attempt that describes a task."""

    number: int
    stdout: Output | None
    stderr: Output | None


class TaskQueries:
    """Reads tasks."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def page(
        self,
        job: int,
        *,
        state: TaskState | None = None,
        cursor: str | None = None,
        limit: int = 100,
        rows: Rows | None = None,
    ) -> Page[TaskView] | None:
        """Return a page of a job's tasks, by number; None if there is no such job.

        ``rows``: where to read the lines of its row file; with it, each task has its parameters.
        """
        last = after(cursor, number, 0)
        views = await self._read(lambda connection: _views(connection, job, state, last, limit + 1))
        if views is None:
            return None
        page = page_of(views, limit, lambda view: view.number)
        if rows is None:
            return page
        return page.model_copy(update={"items": await self._with_parameters(job, page.items, rows)})

    async def _with_parameters(self, job: int, views: list[TaskView], rows: Rows) -> list[TaskView]:
        spec: JobSpec = await self._read(lambda connection: connection.execute(SPEC, {"of_job": job}).scalar_one())
        sweep, lines = Sweep(spec), await rows(spec, [view.number for view in views])
        is_listed = not isinstance(spec.parameters, RowFile)

        def parameters(view: TaskView) -> dict[str, Scalar] | None:
            line = lines.get(view.number)
            return sweep.parameters_at(view.number) if is_listed else None if line is None else dict(line)

        return [view.model_copy(update={"parameters": parameters(view)}) for view in views]

    async def sweep(self, job: int, most: int, rows: Rows) -> SweepTasks | None:
        """Return the first ``count`` tasks of a job; None if there is no such job."""

        def work(connection: Connection) -> tuple[Row[Any] | None, Mapping[int, Row[Any]]]:
            query = select(jobs, specs.c.spec).join_from(jobs, specs).where(jobs.c.id == job)
            found: Iterable[Row[Any]] = connection.execute(_SWEEP, {"of_job": job, "most": most})
            return connection.execute(query).one_or_none(), {row.number: row for row in found}

        of, found = await self._read(work)
        if of is None:
            return None
        count = min(most, of.task_count)
        lines = await rows(of.spec, range(1, count + 1))
        is_cut = of.task_count > count
        return SweepTasks(of.spec, count, is_cut, found, absent=state_of_absent(of), lines=lines)

    async def outputs(self, job: int, last: int, limit: int) -> list[TaskOutputs]:
        """Return stdout and stderr of the job's first ``limit`` tasks after number ``last`` that have any."""
        query = _OUTPUTS.where(tasks.c.job == job, tasks.c.number > last).limit(limit)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [TaskOutputs(row.number, row.stdout, row.stderr) for row in rows]

    async def detail(self, task: TaskId, rows: Rows = no_rows) -> TaskDetail | None:
        """Return a task with its latest attempts; None if there is no such task."""
        found = await self._read(lambda connection: _found(connection, task))
        if found is None:
            return None
        spec, fields, votes, tries = found
        plan = task_at(spec, task.task, (await rows(spec, [task.task])).get(task.task))
        return TaskDetail(
            **{**fields, "parameters": plan.parameters}, command=list(plan.command), votes=votes, attempts=tries
        )


def _views(
    connection: Connection, job_id: int, state: TaskState | None, last: int, limit: int
) -> list[TaskView] | None:
    """Return the first ``limit`` tasks after number ``last``, with rows and without."""
    job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
    if job is None:
        return None
    views = [TaskView(**task_fields(row)) for row in connection.execute(_rows(job_id, state, last, limit))]
    if state is None:
        absent = _absent(connection, job_id, last, min(job.task_count, last + limit), limit)
    elif state is state_of_absent(job):
        absent = _absent(connection, job_id, max(last, _full_prefix(connection, job)), job.task_count, limit)
    else:
        absent = []
    views += [_never_started(job, number) for number in absent]
    return sorted(views, key=lambda view: view.number)[:limit]


def _found(
    connection: Connection, task: TaskId
) -> tuple[JobSpec, dict[str, Any], list[VoteView], list[AttemptView]] | None:
    """Return what the rows say of a task: its job's spec, fields of its view, votes and attempts."""
    query = select(jobs, specs.c.spec).join_from(jobs, specs).where(jobs.c.id == task.job)
    job = connection.execute(query).one_or_none()
    if job is None or not 1 <= task.task <= job.task_count:
        return None
    query = TASK_ROWS.where(tasks.c.job == task.job, tasks.c.number == task.task)
    row = connection.execute(query).one_or_none()
    view = _never_started(job, task.task) if row is None else TaskView(**task_fields(row))
    votes = [] if row is None else [VoteView(attempt=v.attempt, worker=v.worker, digest=v.digest) for v in row.votes]
    fields = {**dict(view), "job_task_count": job.task_count}
    return job.spec, fields, votes, attempts_of_task(connection, task)


def task_fields(task: Row[Any]) -> dict[str, Any]:
    """Return the fields of a view that are columns of a task's row."""
    return {
        **task._mapping,
        "id": TaskId(task.job, task.number),
        "reason": task.verdict or task.reason or why_failed(task.attempt_state, task.exit_code),
        "wall_s": None if task.ended_at is None else task.wall_s,
        "resumed": resumed_view(task),
        "prefetched": task.state is TaskState.RUNNING and task.attempt_state in UNSEATED,
    }


def _rows(job: int, state: TaskState | None, last: int, limit: int) -> Select[Any]:
    """Return the query for the first ``limit`` rows after number ``last``, whose numbers an index answers."""
    numbers = select(tasks.c.number).where(tasks.c.job == job, tasks.c.number > last)
    if state is not None:
        numbers = numbers.where(tasks.c.state == state)
    return TASK_ROWS.where(tasks.c.job == job, tasks.c.number.in_(numbers.order_by(tasks.c.number).limit(limit)))


def _never_started(job: Row[Any], task: int) -> TaskView:
    return TaskView(
        id=TaskId(job.id, task),
        number=task,
        state=state_of_absent(job),
        failures=0,
        started_at=None,
        finished_at=None,
        worker=None,
        exit_code=None,
        reason="",
    )


def _absent(connection: Connection, job: int, last: int, until: int, limit: int) -> list[int]:
    """Return the first ``limit`` numbers after ``last``, up to ``until``, that have no row."""
    here = and_(tasks.c.job == job, tasks.c.number > last, tasks.c.number <= until)
    other = tasks.alias("other")
    next_row = select(func.min(other.c.number)).where(other.c.job == job, other.c.number > tasks.c.number)
    has_next = exists().where(other.c.job == job, other.c.number == tasks.c.number + 1)
    ends = select(tasks.c.number, func.coalesce(next_row.scalar_subquery(), until + 1)).where(here, ~has_next)
    first = connection.scalar(select(func.min(tasks.c.number)).where(here)) or until + 1
    gaps = [range(last + 1, first)]
    for end, start in connection.execute(ends.order_by(tasks.c.number).limit(limit)):
        gaps.append(range(end + 1, min(start, until + 1)))
    return list(islice(chain(*gaps), limit))


def _full_prefix(connection: Connection, job: Row[Any]) -> int:
    """Return the number up to which all tasks of a job have rows, if it has no other rows; otherwise 0.

    Tasks mostly start in order, so there are usually no gaps to find.
    """
    mine = tasks.c.job == job.id
    top = connection.scalar(select(func.max(tasks.c.number)).where(mine)) or 0
    idle = select(func.count()).where(mine, tasks.c.state.in_((TaskState.QUEUED, TaskState.CANCELLED)))
    rows = job.running + job.succeeded + job.failed + (connection.scalar(idle) or 0)
    return top if rows == top else 0
