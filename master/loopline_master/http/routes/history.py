"""History: processor time that users, workers and jobs have taken, past jobs and stays of workers, parallel jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loopline_master.core.scheduler import Scheduler
from loopline_master.http.auth import READERS
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, Limit
from loopline_master.settings import Limits, MasterSettings
from loopline_master.store import Store
from loopline_shared.rest.bodies import (
    HistoryReport,
    HistorySort,
    HistorySubject,
    Page,
    ParallelReport,
    PastJob,
    WorkerStay,
)
from loopline_shared.rest.times import Moment

routes = Routes("history")

By = Annotated[HistorySubject, Field(description="A line for each of these")]
Sort = Annotated[HistorySort, Field(description="The largest comes first: by CPU time, or by energy")]


@routes("GET /history", READERS)
async def get_history(
    store: Store,
    scheduler: Scheduler,
    settings: MasterSettings,
    limits: Limits,
    by: By = "user",
    since: Moment = 0.0,
    until: Moment | None = None,
    limit: Limit = 100,
    sort: Sort = "cpu",
) -> HistoryReport:
    """Return what attempts used that ended between two moments, by user, worker or job."""
    report = await store.usage.by(by, since, _end(scheduler, until), limits.page_size(limit), sort)
    return report.model_copy(update={"co2_grams_per_kwh": settings.co2_grams_per_kwh})


@routes("GET /history/jobs", READERS)
async def get_past_jobs(
    store: Store,
    scheduler: Scheduler,
    limits: Limits,
    since: Moment = 0.0,
    until: Moment | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[PastJob]:
    """Return jobs that ended between two moments, with their sizes and use of the grid, for workload logs."""
    return await store.past.jobs(since, _end(scheduler, until), cursor, limits.page_size(limit))


@routes("GET /history/stays", READERS)
async def get_stays(
    store: Store,
    scheduler: Scheduler,
    limits: Limits,
    since: Moment = 0.0,
    until: Moment | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[WorkerStay]:
    """Return when workers were connected, by the minute, one worker after the other; a page has `limit` workers."""
    return await store.past.stays(since, _end(scheduler, until), cursor, limits.page_size(limit))


@routes("GET /history/parallel", READERS)
async def get_parallel(
    store: Store, scheduler: Scheduler, since: Moment = 0.0, until: Moment | None = None
) -> ParallelReport:
    """Return the utilisation of the grid, and the waits of jobs on several nodes that started between two moments."""
    return await store.past.parallel(since, _end(scheduler, until))


def _end(scheduler: Scheduler, until: float | None) -> float:
    return scheduler.state.now + 1.0 if until is None else until
