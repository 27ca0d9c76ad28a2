"""Sums of the energy of attempts, by source. Most grids have none: then these cost one look at an empty table.

Energy is useful if the attempt's result counts. Of another attempt, the part is useful that a checkpoint kept, in
proportion to CPU time. The rest is wasted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, and_, bindparam, case, exists, func, select

from loopline_master.store.history.attempt_sums import IS_VOTE, KEPT_KNOWN_S, ended_within
from loopline_master.store.rows import insert_into
from loopline_master.store.tables import attempts, checkpoint_accounts, energies, energy_usage, jobs, workers
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.rest.bodies import EnergyUse, HistorySubject

DAY_S = 86400
JOULES_PER_KWH = 3.6e6
_SUBJECTS = {"user": jobs.c.owner, "worker": attempts.c.worker, "job": jobs.c.id}
_KEY = ("job", "task", "number")
_has_kept = and_(checkpoint_accounts.c.kept_cpu_ms > 0, attempts.c.cpu_s > 0)
_kept = case((_has_kept, KEPT_KNOWN_S / attempts.c.cpu_s), else_=0.0)
_useful_j = func.sum(energies.c.joules * case((attempts.c.accepted | IS_VOTE, 1.0), else_=_kept)).label("useful_j")
_all_j = func.sum(energies.c.joules).label("all_j")


def energy_by(
    connection: Connection,
    subject: HistorySubject,
    since: float,
    until: float,
    *,
    is_by_key: bool,
    among: Collection[int] | None = None,
) -> dict[str, EnergyUse]:
    """Return the energy of attempts that ended between these moments, by user, worker or job.

    ``is_by_key``: read all rows, and do not use the index on the end. ``among``: only of these jobs.
    """
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(lambda: defaultdict(lambda: (0.0, 0.0)))
    rows = _query(_SUBJECTS[subject]).where(ended_within(since, until, is_by_key=is_by_key))
    for row in _rows(connection, rows if among is None else rows.where(energies.c.job.in_(among))):
        _add(found[str(row.subject)], row.source, row.useful_j, row.all_j - row.useful_j)
    begin = energy_usage.c.day * DAY_S
    query = select(energy_usage).where(energy_usage.c.kind == subject, begin >= since, begin < until)
    for row in connection.execute(query):
        _add(found[row.name], row.source, row.useful_j, row.wasted_j)
    return {name: _use_of(sums) for name, sums in found.items()}


def energy_of_job(connection: Connection, job: int) -> EnergyUse | None:
    """Return the energy of a job's attempts; None if nothing was measured or declared."""
    sums = {
        row.source: (row.useful_j, row.all_j - row.useful_j) for row in connection.execute(_OF_JOB, {"of_job": job})
    }
    return _use_of(sums) if sums else None


def energy_of_jobs(since: float, until: float, *, is_by_key: bool) -> Subquery:
    """Return the query for the energy of each job by attempts that ended between these moments, in joules."""
    query = select(energies.c.job, _all_j).join_from(energies, attempts, _is_of(attempts))
    return query.where(ended_within(since, until, is_by_key=is_by_key)).group_by(energies.c.job).subquery()


def total_energy(uses: Iterable[EnergyUse]) -> EnergyUse | None:
    """Return the sum of these; None if there are none."""
    useful_kwh = wasted_kwh = 0.0
    by_source: dict[EnergySource, float] = defaultdict(float)
    for use in uses:
        useful_kwh += use.useful_kwh
        wasted_kwh += use.wasted_kwh
        for source, kwh in use.by_source.items():
            by_source[source] += kwh
    return EnergyUse(useful_kwh=useful_kwh, wasted_kwh=wasted_kwh, by_source=by_source) if by_source else None


def keep_energy(connection: Connection, kind: str, name: ColumnElement[str], here: ColumnElement[bool]) -> None:
    """Add the energy of attempts that are about to be deleted to the sums of their users or workers."""
    sums: dict[tuple[str, int, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    query = _query(name, jobs.c.finished_at).outerjoin(workers, workers.c.name == attempts.c.worker)
    for row in _rows(connection, query.where(here)):
        _add(sums, (row.subject, int(row.finished_at // DAY_S), row.source), row.useful_j, row.all_j - row.useful_j)
    if sums:
        rows = [
            {"kind": kind, "name": name, "day": day, "source": source, "useful_j": useful_j, "wasted_j": wasted_j}
            for (name, day, source), (useful_j, wasted_j) in sums.items()
        ]
        connection.execute(_adding(connection.dialect.name), rows)


def _query(subject: ColumnElement[Any], *more: ColumnElement[Any]) -> Select[Any]:
    """Return the query for sums by subject, source and ``more``."""
    named = [subject.label("subject"), energies.c.source, *more]
    query: Select[Any] = select(*named, _useful_j, _all_j).join_from(energies, attempts, _is_of(attempts))
    query = query.join(jobs, jobs.c.id == attempts.c.job).outerjoin(checkpoint_accounts, _is_of(checkpoint_accounts))
    return query.group_by(*named)


def _rows(connection: Connection, query: Select[Any]) -> Sequence[Row[Any]]:
    """Run the query, if there is any energy at all."""
    return connection.execute(query).all() if connection.scalar(select(exists().select_from(energies))) else ()


def _is_of(table: Any) -> ColumnElement[bool]:
    return and_(*(table.c[name] == energies.c[name] for name in _KEY))


def _add(sums: Any, key: Any, useful_j: float, wasted_j: float) -> None:
    before = sums[key]
    sums[key] = before[0] + useful_j, before[1] + wasted_j


def _use_of(sums: dict[str, tuple[float, float]]) -> EnergyUse:
    return EnergyUse(
        useful_kwh=sum(useful_j for useful_j, _ in sums.values()) / JOULES_PER_KWH,
        wasted_kwh=sum(wasted_j for _, wasted_j in sums.values()) / JOULES_PER_KWH,
        by_source={source: sum(both) / JOULES_PER_KWH for source, both in sums.items()},
    )


_OF_JOB = _query(jobs.c.id).where(energies.c.job == bindparam("of_job"))  # built once: jobs are read often


@cache
def _adding(dialect: str) -> Any:
    """Return an INSERT that adds to the sums that are there."""
    statement = insert_into(energy_usage, dialect)
    more = {name: energy_usage.c[name] + statement.excluded[name] for name in ("useful_j", "wasted_j")}
    return statement.on_conflict_do_update(index_elements=list(energy_usage.primary_key), set_=more)
