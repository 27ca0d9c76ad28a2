"""The record of ETAs, kept beside the scheduler's rows: decisions and replays do not depend on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Insert, select

from loopline_master.store.audit import COMPLETED
from loopline_master.store.database.transact import Transact
from loopline_master.store.statements import insert_into
from loopline_master.store.tables import forecasts, jobs
from loopline_master.store.writer import Writer

LOOKED_BACK_ON = 2000
"""At most so many of the latest ETAs of completed jobs are compared with what came true."""


@dataclass(frozen=True, slots=True)
class ToldEta:
    """An ETA at one moment of a job: as users were told, and as the model said before calibration."""

    job: int
    arrival: int
    moment: int
    at: float
    p50_at: float
    p90_at: float
    model_p50_s: float
    model_p90_s: float


@dataclass(frozen=True, slots=True)
class JudgedEta:
    """An ETA, and when its job completed."""

    eta: ToldEta
    completed_at: float


class EtaRecords:
    """Stores ETAs, and reads those whose jobs have completed."""

    def __init__(self, read: Transact, writer: Writer) -> None:
        self._read = read
        self._writer = writer

    async def add(self, etas: Iterable[ToldEta]) -> None:
        """Store ETAs. The first one of a moment counts."""
        rows = [asdict(one) for one in etas]
        if rows:
            await self._writer.write(lambda connection: connection.execute(_new(connection.dialect.name), rows))

    async def judged(self) -> list[JudgedEta]:
        """Return the latest ETAs of jobs that have completed since."""
        query = (
            select(forecasts, jobs.c.finished_at)
            .join_from(forecasts, jobs, (jobs.c.id == forecasts.c.job) & (jobs.c.arrival == forecasts.c.arrival))
            .where(jobs.c.state.in_(COMPLETED))
            .order_by(forecasts.c.at.desc())
            .limit(LOOKED_BACK_ON)
        )
        rows = await self._read(lambda connection: connection.execute(query).all())
        return [JudgedEta(ToldEta(*row[:-1]), row.finished_at) for row in rows]


def _new(dialect: str) -> Insert:
    insert = insert_into(forecasts, dialect)
    return insert.on_conflict_do_nothing()
