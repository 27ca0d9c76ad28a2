"""Usage: processor time of ended attempts, by user, worker or job."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, and_, case, func, literal, select

from loopline_master.store.database import Transact
from loopline_master.store.tables import attempts, jobs, specs
from loopline_shared.model import AttemptState
from loopline_shared.rest.bodies import HistoryLine, HistorySubject

_SUBJECTS = {"user": jobs.c.owner, "worker": attempts.c.worker, "job": attempts.c.job}
_STOPPED = (AttemptState.SUCCEEDED, AttemptState.CANCELLED, AttemptState.CANCELLING, AttemptState.RETRACTING)
_is_vote = and_(attempts.c.asked, attempts.c.state == AttemptState.SUCCEEDED)  # a vote towards a quorum
_is_loser = and_(~attempts.c.accepted, ~_is_vote, attempts.c.state.in_(_STOPPED))
_is_lost = attempts.c.state.in_((AttemptState.FAILED, AttemptState.LOST))


class UsageQueries:
    """Sums usage."""

    def __init__(self, read: Transact) -> None:
        self._read = read

    async def by(self, subject: HistorySubject, since: float, until: float, limit: int) -> list[HistoryLine]:
        """Return the usage by attempts that ended between these moments; the largest comes first."""
        query = _query(subject).where(attempts.c.ended_at >= since, attempts.c.ended_at < until).limit(limit)
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [HistoryLine(**{**row._mapping, "subject": str(row.subject)}) for row in rows]


def _query(subject: HistorySubject) -> Select[Any]:
    of = _SUBJECTS[subject]
    total = func.sum(attempts.c.cpu_s)
    name = func.max(specs.c.name) if subject == "job" else literal("")
    return (
        select(
            of.label("subject"),
            name.label("name"),
            func.count(attempts.c.job.distinct()).label("jobs"),
            func.count().label("attempts"),
            func.sum(case((attempts.c.accepted, 1), else_=0)).label("tasks"),
            func.sum(attempts.c.wall_s).label("wall_s"),
            _cpu_s(attempts.c.accepted | _is_vote).label("useful_cpu_s"),
            _cpu_s(attempts.c.replica & ~attempts.c.asked).label("replicated_cpu_s"),
            _cpu_s(_is_loser).label("wasted_cpu_s"),
            _cpu_s(_is_lost).label("lost_cpu_s"),
        )
        .join_from(attempts, jobs, jobs.c.id == attempts.c.job)
        .join(specs, specs.c.job == jobs.c.id)
        .group_by(of)
        .order_by(total.desc(), of)
    )


def _cpu_s(of: Any) -> Any:
    return func.sum(case((of, attempts.c.cpu_s), else_=0.0))
