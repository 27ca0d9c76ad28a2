"""``loopline passing``: the audit of the order guarantee."""

from __future__ import annotations

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import Exit
from loopline.cli.render import tables


async def passing(*, common: Common = PLAIN) -> int:
    """Audit the promise that no job passes another; the exit code is 1 if it was broken."""
    async with common.client() as client:
        report = await client.passing()
    common.show(report, lambda: tables.passing(report))
    return Exit.FAILED if report.passings else Exit.OK
