"""Dry runs: describe a job without submitting it."""

from __future__ import annotations

from loopline_master.core.estimates import eta
from loopline_master.core.kernel.requests import too_much, warnings
from loopline_master.core.scheduler import Scheduler
from loopline_master.files.blobs import Blobs
from loopline_master.files.row_files import RowFiles
from loopline_master.store import Store
from loopline_master.submissions.submissions import warnings_about, warnings_about_chain, with_rows_counted
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import RowFile
from loopline_shared.rest.bodies import Expected, PlannedTask, Preview
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import task_at

MOST_SHOWN = 20
"""The number of first tasks that a preview shows."""


class DryRuns:
    """Previews jobs."""

    def __init__(self, scheduler: Scheduler, store: Store, blobs: Blobs, rows: RowFiles) -> None:
        self._scheduler = scheduler  # read only
        self._store, self._blobs, self._rows = store, blobs, rows

    async def preview(self, spec: JobSpec) -> Preview:
        """Return the preview of a job. Raises LooplineError if the job would be refused.

        A row file need not have been uploaded if its count is given: its tasks are then not shown.
        """
        rows = spec.parameters
        is_blind = isinstance(rows, RowFile) and rows.count is not None and not await self._blobs.path(rows.sha256)
        spec, remarks = (spec, list[str]()) if is_blind else await with_rows_counted(self._rows, spec)
        state = self._scheduler.state
        if declined := too_much(state, spec.task_count):
            raise LooplineError(declined.code, declined.message, declined.hint, declined.status)
        in_vain = await warnings_about_chain(self._scheduler, self._store, spec) if spec.after else []
        expected = eta.preview(state, spec)
        return Preview(
            task_count=spec.task_count,
            size=spec.known_size,
            tasks=[] if is_blind else await self._first_tasks(spec),
            warnings=[*in_vain, *warnings_about(spec), *warnings(state, spec), *remarks],
            expected=expected and Expected(p50_s=expected.p50_s, p90_s=expected.p90_s),
        )

    async def _first_tasks(self, spec: JobSpec) -> list[PlannedTask]:
        numbers = range(1, min(spec.task_count, MOST_SHOWN) + 1)
        rows = await self._rows.rows(spec, numbers)
        plans = ((number, task_at(spec, number, rows.get(number))) for number in numbers)
        return [PlannedTask(number=n, command=list(plan.command), parameters=plan.parameters) for n, plan in plans]
