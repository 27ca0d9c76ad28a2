"""Usage: how much processor time users, workers and jobs have taken."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loopline_master.core.scheduler import Scheduler
from loopline_master.http.auth import READERS
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Limit
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_shared.rest.bodies import HistoryReport, HistorySubject
from loopline_shared.rest.times import Moment

routes = Routes("history")

By = Annotated[HistorySubject, Field(description="A line for each of these")]


@routes("GET /history", READERS)
async def get_history(
    store: Store,
    scheduler: Scheduler,
    limits: Limits,
    by: By = "user",
    since: Moment = 0.0,
    until: Moment | None = None,
    limit: Limit = 100,
) -> HistoryReport:
    """Return the processor time of attempts that ended between two moments, by user, worker or job, largest first."""
    end = scheduler.state.now + 1.0 if until is None else until
    lines = await store.usage.by(by, since, end, limits.page_size(limit))
    return HistoryReport(since=since, until=end, lines=lines)
