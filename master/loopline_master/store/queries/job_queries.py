"""Jobs as users see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from loopline_master.core.kernel.entities import UNRELEASED
from loopline_master.store.database import Transact
from loopline_master.store.history.energy_sums import energy_of_job
from loopline_master.store.history.job_sums import LARGE
from loopline_master.store.queries.paging import after, number, page_of
from loopline_master.store.queries.plan_queries import kept_plans, plan_of_job, waiting_plans
from loopline_master.store.records import notified
from loopline_master.store.tables import attempts, checkpoint_accounts, energies, jobs, specs
from loopline_shared.model import MAX_ID, JobState, TaskState
from loopline_shared.rest.bodies import (
    Counts,
    JobAccounting,
    JobCondition,
    JobDetail,
    JobPage,
    JobView,
    LiveTotals,
    Period,
    PlanReport,
    PlanView,
    WaitingPlans,
)

_late = (attempts.c.job == jobs.c.id, attempts.c.late)  # few: there is an index for them
_LATE = (
    select(func.coalesce(func.sum(attempts.c.cpu_s), 0.0)).where(*_late).scalar_subquery().label("late_cpu_s"),
    select(func.coalesce(func.sum(attempts.c.assumed_cpu_ms), 0)).where(*_late).scalar_subquery().label("late_ms"),
)
"""Columns to be selected with a job's row: CPU time of late results, and the time assumed for them before."""


def _of_checkpoints(column: str) -> ColumnElement[Any]:
    of_job = select(func.coalesce(func.sum(checkpoint_accounts.c[column]), 0))
    return of_job.where(checkpoint_accounts.c.job == jobs.c.id).scalar_subquery().label(f"checkpoint_{column}")


_CHECKPOINTS = tuple(map(_of_checkpoints, ("kept_cpu_ms", "sent", "sent_bytes", "held_s")))
"""Columns likewise: savings and costs of its checkpoints."""

_USER = jobs.c.owner.label("user")
_VIEW: Select[Any] = select(jobs, _USER, specs.c.name, *_LATE, *_CHECKPOINTS).join_from(jobs, specs)
_ONE = _VIEW.where(jobs.c.id == bindparam("of_job"))  # compiled once: they run for every task
_has_energy = exists().where(energies.c.job == jobs.c.id).label("has_energy")
_DETAIL = _ONE.add_columns(specs.c.spec, _has_energy)
_BY_KEY = select(jobs.c.id).where(
    jobs.c.owner == bindparam("of_owner"), jobs.c.idempotency_key == bindparam("of_key")
)

_is_outside = jobs.c.arrival == UNRELEASED
_arrived = (case((_is_outside, MAX_ID), else_=jobs.c.arrival), jobs.c.id)
"""The arrival for sorting. Jobs outside the grid come last, in the order of their submission."""
_is_held = and_(jobs.c.held_at.is_not(None), jobs.c.released_at.is_(None))
_queued = jobs.c.task_count - jobs.c.running - jobs.c.succeeded - jobs.c.failed
_TOTALS = select(
    func.coalesce(func.sum(case((_is_outside, 0), else_=1)), 0).label("in_grid"),
    func.coalesce(func.sum(case((_is_outside, 1), else_=0)), 0).label("waiting"),
    func.coalesce(func.sum(case((_is_held, 1), else_=0)), 0).label("held"),
    func.coalesce(func.sum(case((_is_outside, 0), else_=_queued)), 0).label("tasks_queued"),
)


SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": jobs.c.id,
    "name": specs.c.name,
    "user": jobs.c.owner,
    "size": jobs.c.size,
    "tasks": jobs.c.task_count,
    "submitted": jobs.c.submitted_at,
    "ended": jobs.c.finished_at,
    "took": jobs.c.finished_at - jobs.c.started_at,
}


_ROUNDED_S = 1e-6
"""REST rounds times to microseconds: a job's end as it was answered must find that job."""


class _labels(FunctionElement[str]):  # noqa: N801 a function of SQL
    """The labels that a job's workers must have, as the text of a JSON array."""

    inherit_cache = True
    type = Text()


@compiles(_labels)
def _labels_in_sqlite(element: _labels, compiler: SQLCompiler, **more: Any) -> str:
    return f"coalesce(json_extract({compiler.process(element.clauses, **more)}, '$.requires.labels'), '')"


@compiles(_labels, "postgresql")
def _labels_in_postgresql(element: _labels, compiler: SQLCompiler, **more: Any) -> str:
    return f"coalesce(({compiler.process(element.clauses, **more)})::json #>> '{{requires,labels}}', '')"


class JobQueries:
    """Reads jobs."""

    def __init__(self, read: Transact, look: Transact) -> None:
        self._read = read
        self._look = look

    async def any(self) -> bool:
        """True if a job was ever submitted, and is not forgotten."""
        return await self._read(lambda connection: connection.execute(select(jobs.c.id).limit(1)).first()) is not None

    async def with_text(self, text: str) -> list[int]:
        """Return the jobs that are not done and have this text in their specs."""
        here = type_coerce(specs.c.spec, Text).contains(text, autoescape=True)
        query = select(jobs.c.id).join_from(jobs, specs).where(jobs.c.departure.is_(None), here).order_by(jobs.c.id)
        return await self._read(lambda connection: list(connection.scalars(query)))

    async def page(
        self,
        *,
        state: JobState | None = None,
        owner: str | None = None,
        named: str | None = None,
        label: str | None = None,
        ended: tuple[float | None, float | None] = (None, None),
        sort: str = "-id",
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """Return a page of jobs by this key of SORTS, with a minus the largest first.

        ``ended``: only jobs that ended since the first moment and before the second one.
        """
        last = after(cursor, number, 0)
        query = _sorted(_VIEW.where(*_only(state, owner, named, label), *_ended(*ended)), sort, last).limit(limit + 1)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return _page(rows, limit, lambda row: row.id)

    async def live_page(
        self,
        *,
        state: JobState | None = None,
        owner: str | None = None,
        named: str | None = None,
        label: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """Return jobs that are not over, in the order of their arrival, with totals over all of them.

        What holds a job arrived before it: without a filter it is on the same page, or on an earlier one.
        """
        last = after(cursor, _arrival, (0, 0))
        live = (jobs.c.departure.is_(None), *_only(state, owner, named, label))
        first = select(jobs.c.id).where(*live, tuple_(*_arrived) > tuple_(*last)).order_by(*_arrived).limit(limit + 1)
        query = _VIEW.where(jobs.c.id.in_(first)).order_by(*_arrived)
        rows, totals = await self._read(
            lambda connection: (connection.execute(query).all(), connection.execute(_TOTALS.where(*live)).one())
        )
        page = _page(rows, limit, lambda row: f"{row.arrival or MAX_ID}-{row.id}")
        return page.model_copy(update={"live": LiveTotals(**totals._mapping)})

    async def view(self, job: int) -> JobView | None:
        """Return a job without its spec, which may be large; None if the job is unknown."""
        row = await self._read(lambda connection: connection.execute(_ONE, {"of_job": job}).one_or_none())
        return None if row is None else JobView(**_fields(row))

    async def detail(self, job: int) -> JobDetail | None:
        """Return a job with its spec; None if there is no such job."""
        return await self._read(lambda connection: _read_detail(connection, job))

    async def plan(self, job: int) -> PlanView | None:
        """Return the plan of a job's next gang, or of the last that has started; None if it has none."""
        return await self._look(lambda connection: plan_of_job(connection, job), is_short=True)

    async def waiting_plans(self, now: float) -> WaitingPlans:
        """Return the plans of the gangs that wait, the earliest first."""
        return await self._read(lambda connection: waiting_plans(connection, now))

    async def kept_plans(self) -> PlanReport:
        """Return how the planned starts of the latest gangs were kept."""
        return await self._read(kept_plans)

    async def by_key(self, owner: str, idempotency_key: str) -> JobDetail | None:
        """Return the job that this owner submitted under this key; None if there is none."""
        values = {"of_owner": owner, "of_key": idempotency_key}
        job = await self._look(lambda connection: connection.scalar(_BY_KEY, values), is_short=True)
        return None if job is None else await self.detail(job)

    async def states(self, numbers: Iterable[int]) -> dict[int, JobState]:
        """Return the states of those of these jobs that exist."""
        query = select(jobs.c.id, jobs.c.state).where(jobs.c.id.in_(set(numbers)))
        rows = await self._read(lambda connection: connection.execute(query).all())
        return {row.id: row.state for row in rows}


def _read_detail(connection: Connection, job: int) -> JobDetail | None:
    row = connection.execute(_DETAIL, {"of_job": job}).one_or_none()
    if row is None:
        return None
    plan = plan_of_job(connection, job) if row.spec.nodes > 1 else None
    is_costly = row.task_count >= LARGE and row.departure is None  # its page asks again at each change
    energy = energy_of_job(connection, row.id) if row.has_energy and not is_costly else None
    return JobDetail(**_fields(row), plan=plan, notification=notified(connection, row.id), energy=energy)


def _only(
    state: JobState | None, owner: str | None, named: str | None, label: str | None
) -> Iterator[ColumnElement[bool]]:
    if state is not None:
        yield jobs.c.state == state
    if owner is not None:
        yield jobs.c.owner == owner
    if named is not None:
        yield jobs.c.id.in_(select(specs.c.job).where(specs.c.name.icontains(named, autoescape=True)))
    if label is not None:
        yield jobs.c.id.in_(select(specs.c.job).where(_labels(specs.c.spec).contains(f'"{label}"', autoescape=True)))


def _ended(since: float | None, until: float | None) -> Iterator[ColumnElement[bool]]:
    if since is not None:
        yield jobs.c.finished_at >= since - _ROUNDED_S
    if until is not None:
        yield jobs.c.finished_at < until - _ROUNDED_S


def _sorted(query: Select[Any], sort: str, last: int) -> Select[Any]:
    """Return the query in this order, after the job with the number ``last`` (0: from the first on).

    Jobs with one key are in the order of their numbers; those without a key come at the end.
    """
    key, is_down = SORTS[sort.removeprefix("-")], sort.startswith("-")
    number_of = jobs.c.id.desc() if is_down else jobs.c.id
    is_later = jobs.c.id < last if is_down else jobs.c.id > last
    if key is jobs.c.id:
        return query.where(is_later if last else true()).order_by(number_of)
    query = query.order_by(key.is_(None), key.desc() if is_down else key, number_of)
    if not last:
        return query
    of_last = select(key).select_from(jobs).join(specs).where(jobs.c.id == last).correlate(None).scalar_subquery()
    return query.where(
        or_(
            key < of_last if is_down else key > of_last,
            and_(key == of_last, is_later),
            and_(key.is_(None), or_(of_last.is_not(None), is_later)),
        )
    )


def _arrival(cursor: str) -> tuple[int, int]:
    """Return the arrival and id in a cursor, ``arrival-id``. Raises ValueError if it is malformed."""
    arrival, _, job = cursor.partition("-")
    return number(arrival), number(job)


def _page(rows: Sequence[Row[Any]], limit: int, key: Callable[[Row[Any]], object]) -> JobPage:
    """Return the page of ``limit`` rows; one more row says that there is a next page."""
    page = page_of(list(rows), limit, key)
    return JobPage(items=[JobView(**_fields(row)) for row in page.items], next=page.next)


def state_of_absent(job: Row[Any]) -> TaskState:
    """Return the state of those tasks of a job that have no row: they were still to be started."""
    return TaskState.QUEUED if job.departure is None else TaskState.CANCELLED


def _fields(job: Row[Any]) -> dict[str, Any]:
    is_held = job.departure is None and job.held_at is not None and job.released_at is None
    fields = {**job._mapping, "tasks": _counts(job), "held": is_held, "ledger": _accounting_of(job)}
    return fields | _periods(job) | {"condition": _condition(job, is_held=is_held)}


def _periods(job: Row[Any]) -> dict[str, Period | None]:
    """Return how long the job waited, took and was held: the one definition for REST, command line and page."""
    ended, started, held = job.finished_at, job.started_at, job.held_at
    return {
        "waited": Period(since=job.submitted_at, until=ended if started is None else started),
        "took": None if started is None else Period(since=started, until=ended),
        "was_held": None if held is None else Period(since=held, until=job.released_at or ended),
    }


def _condition(job: Row[Any], *, is_held: bool) -> JobCondition:
    """Return the state of a job in one word. Nothing of a paused or stalled job starts, held or not."""
    state: JobCondition = job.state
    if job.departure is not None:
        return state
    reasons: dict[JobCondition, bool] = {
        "paused": job.paused,
        "stalled": job.stalled,
        "held": is_held,
        "overdrawn": job.overdrawn,
    }
    return next((word for word, applies in reasons.items() if applies), state)


def _counts(job: Row[Any]) -> Counts:
    ended = {"running": job.running, "succeeded": job.succeeded, "failed": job.failed}
    return Counts(**ended, **{state_of_absent(job): job.task_count - sum(ended.values())})


def _accounting_of(job: Row[Any]) -> JobAccounting:
    """Return the accounting of a job from its row."""
    return JobAccounting(
        useful_cpu_s=job.useful_cpu_ms / 1000,
        replicated_cpu_s=job.replicated_cpu_ms / 1000,
        won_cpu_s=job.won_cpu_ms / 1000,
        wasted_cpu_s=job.wasted_cpu_ms / 1000 + job.late_cpu_s,
        lost_cpu_s=max(0, job.lost_cpu_ms - int(job.late_ms)) / 1000,
        kept_cpu_s=int(job.checkpoint_kept_cpu_ms) / 1000,
        checkpoints=int(job.checkpoint_sent),
        checkpoint_bytes=int(job.checkpoint_sent_bytes),
        checkpoint_held_s=job.checkpoint_held_s,
    )
