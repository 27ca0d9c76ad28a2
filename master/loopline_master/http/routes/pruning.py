"""Pruning: removes files that no job needs."""

from __future__ import annotations

from loopline_master.files.retention import Retention
from loopline_master.http.auth import ADMINS
from loopline_master.http.operations import Routes
from loopline_shared.rest.bodies import PruneReport, PruneRequest

routes = Routes("files")


@routes("POST /prune", ADMINS)
async def prune(retention: Retention, body: PruneRequest) -> PruneReport:
    """Say which files nobody needs, and remove them where `delete` is true.

    Files that no job names are among them, once they are older than `file_grace_s`; with `older_than_s` those of jobs
    that have been over for so long, too. The rows of jobs stay.
    """
    return await retention.prune(body.older_than_s, delete=body.delete, by_hand=True)
