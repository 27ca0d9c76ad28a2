"""The queue: jobs in the policy's order, their demand for slots, the shares of users, and limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from loopline_master.commands.limit_commands import LimitCommands
from loopline_master.core.events import LimitChanged, ShareChanged
from loopline_master.core.explain.demand import demand_view
from loopline_master.core.explain.explain_shares import shares_view
from loopline_master.core.explain.explain_units import limits_view
from loopline_master.core.explain.queue_view import queue
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.resources.limit import EACH_USER, WHOLE_GRID
from loopline_master.engine import Engine
from loopline_master.files.user_files import UserFiles
from loopline_master.http.auth import ADMINS, READERS
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import flag
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_shared.model import Name
from loopline_shared.rest.bodies import DemandView, LimitRequest, LimitsView, ShareRequest, SharesView
from loopline_shared.rest.columns import Queue

routes = Routes("jobs")

LimitName = Annotated[Name, Field(description="The limit's name, which jobs give in `requires.needs`")]
ForUser = Annotated[Name, Field(description="Remove the limit of this user")]
PerUser = Annotated[bool, BeforeValidator(flag), Field(description="Remove the limit of each user")]
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


@routes("GET /limits", READERS)
async def get_limits(scheduler: Scheduler, commands: LimitCommands) -> LimitsView:
    """List the limits, with the units that each user holds."""
    return commands.annotate(limits_view(scheduler.state))


@routes("PUT /limits/{name}", ADMINS, declines=(409,))
async def set_limit(
    engine: Engine,
    scheduler: Scheduler,
    commands: LimitCommands,
    action: AuditedAction,
    name: LimitName,
    body: LimitRequest,
) -> LimitsView:
    """Set how many units of something tasks may hold at once. Running tasks stay, even if they exceed it."""
    whom = _whom(body.user, per_user=body.per_user)
    if whom == WHOLE_GRID:
        commands.check_is_free(name)
    await engine.ask(LimitChanged(name, whom, body.units), action)
    return commands.annotate(limits_view(scheduler.state))


@routes("DELETE /limits/{name}", ADMINS, declines=(409,))
async def remove_limit(
    engine: Engine,
    scheduler: Scheduler,
    commands: LimitCommands,
    action: AuditedAction,
    name: LimitName,
    user: ForUser | None = None,
    per_user: PerUser = False,
) -> LimitsView:
    """Remove a limit: by default the one for the whole grid."""
    whom = _whom(user, per_user=per_user)
    if whom == WHOLE_GRID:
        commands.check_is_free(name)
    await engine.ask(LimitChanged(name, whom, None), action)
    return commands.annotate(limits_view(scheduler.state))


def _whom(user: str | None, *, per_user: bool) -> str:
    return EACH_USER if per_user else WHOLE_GRID if user is None else user
