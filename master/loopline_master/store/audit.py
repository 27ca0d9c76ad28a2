"""The audit of the order guarantee, from the stored rows: it does not rely on the scheduler's own opinion.

Job B *passes* job A if A was in the grid when B came (it arrived first and had not left), A has a size, B's size is
not smaller, and B completes while A is still there. Without a size, B has the size measured on its tasks, or is
larger than any other. Jobs of order none, such as the parts of a session, are outside the order: they neither pass
nor are passed. Every completion under an order is checked in the transaction that stores it, and a passing is
stored with the reason that excuses it, if there is one.

An exemption excuses only if its evidence is consistent with the rows of attempts and workers in the transaction that
begins it; otherwise it is a violation itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import get_type_hints

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from loopline_master.core.kernel.entities import UNRELEASED
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_master.core.wings.exemptions.exemption import AttemptRow, Evidence, WorkerRow, flaw_of
from loopline_master.store.rows import EVIDENCE, Statement, Write, run, upsert
from loopline_master.store.tables import attempts, audits, evidence, exemptions, flaws, jobs, passings, workers
from loopline_shared.model import JobState, Order, OrderWithin
from loopline_shared.rest.bodies import Flaw, Passing, PassingReport

COMPLETED = (JobState.SUCCEEDED, JobState.FAILED)
_a, _b = jobs.alias("a"), jobs.alias("b")


def _text(value: str) -> ColumnElement[str]:
    """Return a constant as literal text of a statement; only a row's values are parameters."""
    return literal_column(f"'{value}'", Text)


_NONE = _text(Order.NONE)


def _passes() -> ColumnElement[bool]:
    """Return the condition under which b passed a."""
    weight = func.coalesce(_b.c.size, _b.c.shown)
    return and_(
        _a.c.arrival != literal_column(str(UNRELEASED), Integer),  # it was waiting for other jobs, outside the grid
        _a.c.arrival < _b.c.arrival,
        or_(_a.c.departure.is_(None), _a.c.departure > _b.c.departure),
        _a.c.size.is_not(None),
        _a.c.order != _NONE,
        _b.c.order != _NONE,
        or_(weight.is_(None), _a.c.size <= weight),
    )


def _excuse() -> ColumnElement[str | None]:
    """Return the reason why b was allowed to pass a: in force for all of b's time, or as b was (last) released."""
    key = (
        exemptions.c.job == flaws.c.job,
        exemptions.c.since == flaws.c.since,
        exemptions.c.reason == flaws.c.reason,
    )
    exempt = (
        select(func.min(exemptions.c.reason))
        .where(~select(flaws).where(*key).exists())
        .where(exemptions.c.job == _a.c.id, exemptions.c.since <= _b.c.released_at)
        .where(or_(exemptions.c.until.is_(None), exemptions.c.until >= _b.c.released_at))
    )
    is_anothers = and_(_b.c.within == _text(OrderWithin.USER), _a.c.owner != _b.c.owner)
    return func.coalesce(case((is_anothers, _text("other-user"))), exempt.scalar_subquery())


_under_way = select(*(attempts.c[name] for name in get_type_hints(AttemptRow))).where(attempts.c.ended_at.is_(None))
_shown_by = select(workers.c.name, *(workers.c[name] for name in get_type_hints(WorkerRow)))
_done, _now = _b.c.id == bindparam("completed"), bindparam("now", type_=Double)
_checked = select(_b.c.id, _b.c.arrival, _b.c.departure, _now).where(_done, _b.c.order != _NONE)
_found = select(_b.c.id, _b.c.arrival, _a.c.id, _excuse(), _now).where(_done, _passes())
_CHECKED = insert(audits).from_select(["job", "arrival", "departure", "at"], _checked)
_FOUND = insert(passings).from_select(["job", "arrival", "passed", "reason", "at"], _found)
_AUDIT = [Statement(lambda _: _CHECKED), Statement(lambda _: _FOUND)]


def writes(completed: Collection[int], at: float) -> list[Write]:
    """Return what checks jobs that have just completed, and stores the passings found; after their rows."""
    return [(statement, [(at, job) for job in completed]) for statement in _AUDIT] if completed else []


_UNTIL = select(exemptions.c.until).where(
    exemptions.c.job == bindparam("job"),
    exemptions.c.since == bindparam("since"),
    exemptions.c.reason == bindparam("reason"),
)


def check_evidence(connection: Connection, begun: Sequence[Evidence]) -> None:
    """Check the evidence of exemptions that begin in this transaction, and store the flaws; after all other rows."""
    run_query = connection.execute
    for one in begun:
        earlier = EVIDENCE.select().where(evidence.c.job == one.job, evidence.c.since < one.since)
        names = {work.worker for work in one.attempts}
        flaw = flaw_of(
            one,
            run_query(select(jobs).where(jobs.c.id == one.job)).one(),
            connection.scalar(select(func.sum(attempts.c.work)).where(attempts.c.job == one.job)) or 0.0,
            run_query(_under_way.where(attempts.c.job == one.job)).all(),
            {row.name: row for row in run_query(_shown_by.where(workers.c.name.in_(names)))},
            [work for row in run_query(earlier) for work in EVIDENCE.entity(row).attempts],
            has_ended=connection.scalar(_UNTIL, {"job": one.job, "since": one.since, "reason": one.reason})
            is not None,
        )
        if flaw:
            run(connection, [(upsert(flaws), [(one.job, one.since, one.reason, flaw)])])


def report(connection: Connection, settings: SchedulerSettings, limit: int) -> PassingReport:
    """Return the numbers of completions checked and of passings found; ``settings`` are those now in force."""
    by_reason = select(passings.c.reason, func.count()).group_by(passings.c.reason)
    latest = select(passings).order_by(passings.c.at.desc(), passings.c.job.desc()).limit(limit)
    counts = {row[0]: row[1] for row in connection.execute(by_reason)}
    unfounded = select(flaws).order_by(flaws.c.since.desc(), flaws.c.job.desc()).limit(limit)
    flaw_count = connection.scalar(select(func.count()).select_from(flaws)) or 0
    return PassingReport(
        order=settings.order,
        within=settings.order_within,
        completions=connection.scalar(select(func.count()).select_from(audits)) or 0,
        passings=counts.pop(None, 0) + flaw_count,
        excused=counts,
        latest=[Passing(job=row.job, passed=row.passed, reason=row.reason) for row in connection.execute(latest)],
        unfounded=[Flaw(job=row.job, reason=row.reason, flaw=row.flaw) for row in connection.execute(unfounded)],
    )


def recheck(connection: Connection) -> set[tuple[int, int]]:
    """Return the passings (job, passed) among all rows; a job that was retried counts as it is now."""
    query = select(_b.c.id, _a.c.id).where(_b.c.state.in_(COMPLETED), _passes())
    return {(job, passed) for job, passed in connection.execute(query)}
