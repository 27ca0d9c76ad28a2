"""Sums over attempts: resources and outcomes. Columns of queries, which group them as they like.

CPU time that checkpoints kept of an attempt without a result is neither wasted nor lost. The few attempts with
checkpoints correct these sums in queries of their own (``of_checkpoints``), so that all others cost nothing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Double, Select, and_, case, cast, exists, func, literal, or_, select

from loopline_master.store.tables import attempts, checkpoint_accounts, jobs
from loopline_shared.model import AttemptState

_STOPPED = (AttemptState.SUCCEEDED, AttemptState.CANCELLED, AttemptState.CANCELLING, AttemptState.RETRACTING)
_other = attempts.alias()
_has_quorum = exists().where(_other.c.job == attempts.c.job, _other.c.task == attempts.c.task, _other.c.asked)
IS_VOTE = and_(~attempts.c.accepted, attempts.c.state == AttemptState.SUCCEEDED, _has_quorum)
"""True for a vote towards a quorum, in addition to the accepted attempt."""
_is_beaten = exists().where(
    _other.c.job == attempts.c.job,
    _other.c.task == attempts.c.task,
    _other.c.accepted,
    _other.c.ended_at <= attempts.c.ended_at,
)
_is_stopped = and_(~attempts.c.accepted, attempts.c.state.in_(_STOPPED), ~IS_VOTE)
_is_loser = and_(_is_stopped, _is_beaten)
_is_lost = or_(attempts.c.state.in_((AttemptState.FAILED, AttemptState.LOST)), and_(_is_stopped, ~_is_beaten))
"""Failed, lost, preempted, or cancelled with its job: as the job's own account has it (estimates/measure.py)."""


def ended_within(since: float, until: float, *, is_by_key: bool) -> ColumnElement[bool]:
    """Return the condition; by key, a sum keeps the index on the end out, and the rows in the order of their key."""
    ended_at: ColumnElement[float | None] = attempts.c.ended_at + 0 if is_by_key else attempts.c.ended_at
    return and_(ended_at >= since, ended_at < until)


def _cpu_s(of: ColumnElement[bool]) -> ColumnElement[float]:
    return func.sum(case((of, attempts.c.cpu_s), else_=0.0))


def _of_accepted(column: str) -> ColumnElement[float]:
    return func.sum(case((attempts.c.accepted, attempts.c[column]), else_=0.0))


def _count(of: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((of, 1), else_=0))


USED: tuple[ColumnElement[Any], ...] = (
    func.count().label("attempts"),
    _count(attempts.c.accepted).label("tasks"),
    func.sum(attempts.c.wall_s).label("wall_s"),
    _cpu_s(attempts.c.accepted | IS_VOTE).label("useful_cpu_s"),
    _cpu_s(attempts.c.replica & ~attempts.c.asked).label("replicated_cpu_s"),
    _cpu_s(_is_loser).label("wasted_cpu_s"),
    _cpu_s(_is_lost).label("lost_cpu_s"),
)
"""What attempts that have ended used."""
WENT: tuple[ColumnElement[Any], ...] = (
    _count(attempts.c.state == AttemptState.LOST).label("lost"),
    _count(attempts.c.state == AttemptState.FAILED).label("failed"),
    _count(and_(attempts.c.state == AttemptState.CANCELLED, attempts.c.reason.like("%owner%"))).label("given_back"),
    _count(and_(attempts.c.accepted, attempts.c.replica, ~attempts.c.asked)).label("replicas_won"),
    *(_of_accepted(phase).label(phase) for phase in ("fetch_s", "frozen_s", "deliver_s")),
    _of_accepted("wall_s").label("accepted_s"),
    func.max(case((attempts.c.accepted, attempts.c.wall_s), else_=0.0)).label("slowest_s"),
)
"""Attempts by outcome, including attempts that have not ended."""
TASKS: ColumnElement[int] = _count(attempts.c.accepted).label("tasks")
_kept_s = cast(checkpoint_accounts.c.kept_cpu_ms, Double) / 1000
KEPT_KNOWN_S = case((_kept_s < attempts.c.cpu_s, _kept_s), else_=attempts.c.cpu_s)
"""The correction is at most the known time: a lost attempt has none."""


def _less_kept(of: ColumnElement[bool]) -> ColumnElement[float]:
    return -func.sum(case((of, KEPT_KNOWN_S), else_=0.0))


_OF_CHECKPOINTS: tuple[ColumnElement[Any], ...] = (
    _less_kept(_is_loser).label("wasted_cpu_s"),
    _less_kept(_is_lost).label("lost_cpu_s"),
    func.sum(_kept_s).label("kept_cpu_s"),
    func.sum(checkpoint_accounts.c.sent).label("checkpoints"),
    func.sum(checkpoint_accounts.c.sent_bytes).label("checkpoint_bytes"),
    func.sum(checkpoint_accounts.c.held_s).label("checkpoint_held_s"),
)
OF_CHECKPOINTS = "kept_cpu_s", "checkpoints", "checkpoint_bytes", "checkpoint_held_s"
"""Figures of ``of_checkpoints`` alone."""


def of_checkpoints(subject: ColumnElement[Any]) -> Select[Any]:
    """Return the query for savings and costs of the checkpoints of ended attempts, by subject.

    The wasted and lost time in it is negative: the correction of other sums.
    """
    is_its = and_(*(checkpoint_accounts.c[name] == attempts.c[name] for name in ("job", "task", "number")))
    query = select(subject.label("subject"), literal("").label("name"), *_OF_CHECKPOINTS)
    query = query.join_from(checkpoint_accounts, attempts, is_its).join(jobs, jobs.c.id == attempts.c.job)
    return query.where(attempts.c.ended_at.is_not(None)).group_by(subject)
