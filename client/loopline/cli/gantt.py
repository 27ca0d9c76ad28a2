"""``loopline gantt``: the attempts of jobs as bars over time."""

from __future__ import annotations

import time

from loopline.cli.common import PLAIN, Common, has_colour, some, stdout
from loopline.cli.render.chart import draw
from loopline.cli.subjects import JobNumber
from loopline_shared.rest.bodies import AttemptView

LATEST = 3


async def gantt(*jobs: JobNumber, common: Common = PLAIN) -> None:
    """Draw which worker ran what, and when: a row for each slot, a bar for each attempt.

    Parameters
    ----------
    jobs
        Their numbers; without any, the latest three.
    """
    async with common.client() as client:
        chosen = (
            [await client.job(job) for job in jobs] if jobs else await some(LATEST, client.jobs(page_size=LATEST))
        )
        attempts: list[AttemptView] = []
        for job in chosen:
            attempts += await some(0, client.attempts(job.id))
    names = {job.id: job.name for job in chosen}
    screen = stdout()
    common.show(attempts, lambda: draw(attempts, names, time.time(), screen.width, has_colour(screen)))
