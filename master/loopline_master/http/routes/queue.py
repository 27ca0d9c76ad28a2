"""The queue: jobs in the policy's order, their demand for slots, and the shares of users."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loopline_master.core.events import ShareChanged
from loopline_master.core.explain.demand import demand_view
from loopline_master.core.explain.explain_shares import shares_view
from loopline_master.core.explain.queue_view import queue
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Engine
from loopline_master.files.user_files import UserFiles
from loopline_master.http.auth import ADMINS, READERS
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.operations import Routes
from loopline_shared.model import Name
from loopline_shared.rest.bodies import DemandView, ShareRequest, SharesView
from loopline_shared.rest.columns import Queue

routes = Routes("jobs")

UserName = Annotated[Name, Field(description="The user's name, as in a token")]


@routes("GET /queue", READERS, is_shared=True)
async def get_queue(scheduler: Scheduler) -> Queue:
    """List the jobs in the grid in the order of the policy, with the job that holds each.

    Jobs that wait for others to succeed come last.
    """
    return Queue(queue(scheduler.state))


@routes("GET /demand", READERS)
async def get_demand(scheduler: Scheduler) -> DemandView:
    """Return the tasks that could start now if there were slots, by requirement.

    For programs that start and end workers. Tasks that are held, paused or beyond a limit of their user are left out.
    """
    return demand_view(scheduler.state)


@routes("GET /shares", READERS, is_shared=True)
async def get_shares(scheduler: Scheduler, streams: OpenStreams, files: UserFiles) -> SharesView:
    """Return each user's use of the grid, compared with their share and limits."""
    return await _with_more(shares_view(scheduler.state), streams, files)


@routes("PUT /shares/{user}", ADMINS)
async def set_share(
    engine: Engine,
    scheduler: Scheduler,
    streams: OpenStreams,
    files: UserFiles,
    user: UserName,
    body: ShareRequest,
) -> SharesView:
    """Set a user's share of the grid; the default is 1."""
    await engine.ask(ShareChanged(user, body.share))
    return await _with_more(shares_view(scheduler.state), streams, files)


async def _with_more(view: SharesView, streams: OpenStreams, files: UserFiles) -> SharesView:
    """Add the limits that the scheduler does not know."""
    for one in view.users:
        one.limits.extend((streams.limit_of(one.user), await files.limit_of(one.user)))
    return view
