"""``loopline passing``: has the promise been kept?"""

from __future__ import annotations

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import Exit
from loopline.cli.render import tables


async def passing(*, common: Common = PLAIN) -> int:
    """Audit the promise that no job passes another; the exit code is 1 where it was broken.

    Every completion is checked against the master's stored rows, apart from what its scheduler believes.
    """
    async with common.client() as client:
        report = await client.passing()
    common.show(report, lambda: tables.passing(report))
    return Exit.FAILED if report.passings else Exit.OK
