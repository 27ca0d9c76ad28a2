"""Pruning: removes files that no job needs."""

from __future__ import annotations

from loopline_master.files.retention import Retention
from loopline_master.http.auth import ADMINS
from loopline_master.http.operations import Routes
from loopline_shared.rest.bodies import PruneReport, PruneRequest

routes = Routes("files")


@routes("POST /prune", ADMINS)
async def prune(retention: Retention, body: PruneRequest) -> PruneReport:
    """Report which files no job needs, and remove them if `delete` is true.

    These are files that no job names, once they are older than `file_grace_s`; with `older_than_s`, also files of
    jobs that ended at least that long ago. The rows of jobs are kept.
    """
    return await retention.prune(body.older_than_s, delete=body.delete, by_hand=True)
