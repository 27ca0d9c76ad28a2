"""``loopline prune``: list the unused files on the master, or remove them."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console, Group
from rich.text import Text

from loopline.cli import values
from loopline.cli.common import PATIENCE_S, PLAIN, Common, read_by, stderr
from loopline.cli.render import human
from loopline_shared.rest import bodies

Age = Annotated[float | None, read_by(values.duration, "DURATION")]


async def prune(*, older_than: Age = None, delete: bool = False, common: Common = PLAIN) -> None:
    """List the unused files on the master, or remove them with --delete; for admins.

    A file is unused if no job names it and it is a week old (`file_grace_s` of the master). Interrupted uploads count
    too. Jobs, tasks and short outputs stay listed, whatever is removed.

    Parameters
    ----------
    older_than
        Also the files of jobs that ended so long ago: 30d, 12h. Their results can no longer be fetched.
    delete
        Remove the files; without this option they are only listed.
    """
    console: Console = stderr()
    async with common.client(PATIENCE_S) as client:
        with console.status("searching the master's files"):
            report = await client.prune(older_than, delete=delete)
    common.show(report, lambda: _summary(report))


def _summary(report: bodies.PruneReport) -> Group:
    verb = "removed" if report.deleted else "to be removed"
    lines = [Text(f"{human.plural(report.files, 'file')} ({human.amount(report.bytes)}) {verb}")]
    if report.uploads:
        lines.append(
            Text(f"{human.plural(report.uploads, 'unfinished upload')} ({human.amount(report.upload_bytes)})")
        )
    if report.job_count:
        named = ", ".join(map(str, report.jobs[:10])) + (", ..." if report.job_count > 10 else "")
        lines.append(Text(f"jobs whose files go: {human.plural(report.job_count, 'job')} ({named})"))
    lines.append(Text(f"files newer than {human.duration(report.grace_s)} or used by other jobs are kept", "dim"))
    if not report.deleted and (report.files or report.uploads):
        lines.append(Text("nothing has been removed: add --delete to remove them", "yellow"))
    return Group(*lines)
