"""Programs: statistics of past runs."""

from __future__ import annotations

from loopline_master.http.auth import READERS
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, Limit, OfProgram, OfUser
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_shared.rest.bodies import Page, ProgramView

routes = Routes("programs")


@routes("GET /programs", READERS)
async def list_programs(
    store: Store,
    limits: Limits,
    user: OfUser | None = None,
    name: OfProgram | None = None,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[ProgramView]:
    """List programs, last used first: their past runs, and the prediction for the next one."""
    size = limits.page_size(limit)
    return await store.programs.page(owner=user, name=name, cursor=cursor, limit=size)
