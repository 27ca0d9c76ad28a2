"""``loopline prune``: files that nobody needs, shown first."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console, Group
from rich.text import Text

from loopline.cli import values
from loopline.cli.common import PATIENCE_S, PLAIN, Common, read_by, stderr
from loopline.cli.render import human
from loopline_shared.rest.bodies import PruneReport

Age = Annotated[float | None, read_by(values.duration, "DURATION")]


async def prune(*, older_than: Age = None, delete: bool = False, common: Common = PLAIN) -> None:
    """Show which files the master need not keep, and with --delete remove them; for admins.

    Files that no job names are among them once they are a week old (`file_grace_s` of the master), and uploads that
    broke off. Jobs, tasks and short outputs stay listed, whatever is removed.

    Parameters
    ----------
    older_than
        Files of jobs that have been over for so long, too: 30d, 12h. Their results cannot be fetched any more.
    delete
        Remove them; without it they are only shown.
    """
    console: Console = stderr()
    async with common.client(PATIENCE_S) as client:
        with console.status("looking through the master's files"):
            report = await client.prune(older_than, delete=delete)
    common.show(report, lambda: _summary(report))


def _summary(report: PruneReport) -> Group:
    verb = "removed" if report.deleted else "to be removed"
    lines = [Text(f"{human.plural(report.files, 'file')} ({human.amount(report.bytes)}) {verb}")]
    if report.uploads:
        lines.append(
            Text(f"{human.plural(report.uploads, 'unfinished upload')} ({human.amount(report.upload_bytes)})")
        )
    if report.job_count:
        named = ", ".join(map(str, report.jobs[:10])) + (", ..." if report.job_count > 10 else "")
        lines.append(Text(f"their files are not kept any more: {human.plural(report.job_count, 'job')} ({named})"))
    lines.append(
        Text(f"what is younger than {human.duration(report.grace_s)} stays, and what other jobs name", "dim")
    )
    if not report.deleted and (report.files or report.uploads):
        lines.append(Text("nothing has been removed: do it with --delete", "yellow"))
    return Group(*lines)
