"""Previews: what a job would be, before it is submitted."""

from __future__ import annotations

from loopline_master.core.estimates import eta
from loopline_master.core.requests import too_much, warnings
from loopline_master.core.scheduler import Scheduler
from loopline_master.files.blobs import Blobs
from loopline_master.files.row_files import RowFiles
from loopline_master.http.auth import USERS
from loopline_master.http.operations import Routes
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import Expected, PlannedTask, Preview
from loopline_shared.spec import JobSpec, RowFile
from loopline_shared.sweep import task_at

routes = Routes("jobs")

MOST_SHOWN = 20


@routes("POST /jobs/preview", USERS, declines=(503,))
async def preview_job(scheduler: Scheduler, blobs: Blobs, row_files: RowFiles, body: JobSpec) -> Preview:
    """What would come of submitting a job: its first tasks, and what there is to say. Nothing is submitted.

    A row file need not have been uploaded if its count is given: its tasks are then not shown.
    """
    is_blind = isinstance(rows := body.parameters, RowFile) and rows.count and not blobs.find(rows.sha256)
    spec, remarks = (body, list[str]()) if is_blind else await row_files.checked(body)
    state = scheduler.state
    if declined := too_much(state, spec):
        raise LooplineError(declined.code, declined.message, declined.hint, declined.status)
    expected = eta.preview(state, spec)
    return Preview(
        task_count=spec.task_count,
        size=spec.known_size,
        tasks=[] if is_blind else await _first_tasks(row_files, spec),
        warnings=[*warnings(state.workers.values(), spec), *remarks],
        expected=expected and Expected(p50_s=expected.p50_s, p90_s=expected.p90_s),
    )


async def _first_tasks(row_files: RowFiles, spec: JobSpec) -> list[PlannedTask]:
    numbers = range(1, min(spec.task_count, MOST_SHOWN) + 1)
    rows = await row_files.rows(spec, numbers)
    plans = ((number, task_at(spec, number, rows.get(number))) for number in numbers)
    return [PlannedTask(number=n, command=list(plan.command), parameters=plan.parameters) for n, plan in plans]
