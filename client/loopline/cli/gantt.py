"""``loopline gantt``: the attempts of jobs as bars over time."""

from __future__ import annotations

import time

from loopline.cli.common import PLAIN, Common, JobNumber, has_colour, some, stdout
from loopline.cli.render.chart import draw
from loopline_shared.rest.bodies import AttemptView, WaitingPlans

LATEST = 3


async def gantt(*jobs: JobNumber, plan: bool = False, common: Common = PLAIN) -> None:
    """Draw which worker ran what, and when: a row for each slot, a bar for each attempt.

    Parameters
    ----------
    jobs
        Their numbers; without any, the latest three.
    plan
        Draw the future, too: when and where gangs that wait are planned to start, and for how long at the most.
    """
    async with common.client() as client:
        chosen = (
            [await client.job(job) for job in jobs] if jobs else await some(LATEST, client.jobs(page_size=LATEST))
        )
        attempts: list[AttemptView] = []
        for job in chosen:
            attempts += await some(0, client.attempts(job.id))
        planned = await client.plans() if plan else WaitingPlans(now=time.time(), plans=[])
    wanted = [one for one in planned.plans if not jobs or one.job in jobs]
    names = {job.id: job.name for job in chosen} | {one.job: one.name for one in wanted}
    screen = stdout()
    found = {"attempts": attempts, "plans": wanted} if plan else attempts
    common.show(found, lambda: draw(attempts, names, planned.now, screen.width, has_colour(screen), wanted))
