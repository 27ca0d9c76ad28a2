"""Parameters of a sweep on their way to the master: as a rule, as rows in the job, or as a file of rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from loopline.cli.errors import usage
from loopline.cli.submission import sources
from loopline.cli.submission.options import SweepOptions
from loopline.cli.submission.progress import bytes_bar, row_count
from loopline.client import AsyncClient
from loopline.transfer.row_upload import Row, WrittenRows, upload, written
from loopline_shared.rest.bodies import PlannedTask, Preview
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import parameter_names, task_at, unknown_names

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SweepParameters:
    """Parameters as the job spec has them, and the rows that were read for them, if any."""

    parameters: Any
    rows: WrittenRows | None = None

    def names_in(self, job: JobSpec) -> set[str]:
        """Return the names of the parameters that the job's tasks have."""
        return set(self.rows.names) if self.rows is not None else parameter_names(job)

    async def upload(self, client: AsyncClient) -> None:
        """Upload the rows, if the job only names them."""
        if self.rows is not None and not self.rows.are_few:
            with bytes_bar("uploading rows", self.rows.size_bytes) as on_progress:
                await upload(client, self.rows, on_progress)

    def shown_in(self, preview: Preview, spec: JobSpec) -> Preview:
        """Return the preview with the first tasks and misspelt names: the master does not know the rows yet."""
        if self.rows is None or preview.tasks:
            return preview
        plans = enumerate((task_at(spec, n, row) for n, row in enumerate(self.rows.first(MOST_SHOWN), 1)), 1)
        tasks = [PlannedTask(number=n, command=list(plan.command), parameters=plan.parameters) for n, plan in plans]
        warnings = [*preview.warnings, *unknown_names(spec, self.rows.names)]
        return preview.model_copy(update={"tasks": tasks, "warnings": warnings})


@asynccontextmanager
async def opened(options: SweepOptions, again: Sequence[Row] = ()) -> AsyncIterator[SweepParameters]:
    """Yield the parameters that the options name; rows are kept in a file until the end of the block.

    ``again``: rows of an earlier job, to be taken instead.
    """
    try:
        rule = None if again else sources.grid(options)
    except ValueError as error:
        raise usage(str(error)) from None
    if rule is not None:
        yield SweepParameters(rule)
        return
    async with AsyncExitStack() as until_end:
        try:
            with row_count() as on_progress:
                rows = await until_end.enter_async_context(written(again or sources.rows(options), on_progress))
        except ValueError as error:
            raise usage(str(error)) from None
        yield SweepParameters(rows.parameters().model_dump(exclude_defaults=True), rows)
