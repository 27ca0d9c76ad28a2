"""Previews of jobs before they are submitted."""

from __future__ import annotations

from loopline_master.http.auth import USERS
from loopline_master.http.operations import Routes
from loopline_master.submissions.dry_run import DryRuns
from loopline_shared.rest.bodies import Preview
from loopline_shared.spec import JobSpec

routes = Routes("jobs")


@routes("POST /jobs/preview", USERS, is_audited=False, declines=(503,))
async def preview_job(dry_runs: DryRuns, body: JobSpec) -> Preview:
    """Preview a job: its first tasks, warnings, and its expected time. Nothing is submitted.

    A row file need not have been uploaded if its count is given: its tasks are then not shown.
    """
    return await dry_runs.preview(body)
