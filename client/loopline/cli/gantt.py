"""``loopline gantt``: the attempts of jobs as bars over time."""

from __future__ import annotations

import time

from loopline.cli.common import PLAIN, Common, JobNumber, has_colour, some, stdout
from loopline.cli.render import chart
from loopline_shared.ids_and_states import JobState
from loopline_shared.rest import bodies

LATEST, RUNNING = 3, 20


async def gantt(*jobs: JobNumber, plan: bool = False, common: Common = PLAIN) -> None:
    """Draw which worker ran what, and when: a row for each slot, a bar for each attempt.

    Parameters
    ----------
    jobs
        Their numbers; without any, the latest three, and with --plan those that run, too.
    plan
        Draw the future, too: when and where gangs that wait are planned to start, and for how long at the most.
    """
    async with common.client() as client:
        chosen: dict[int, bodies.JobView] = {job: await client.job(job) for job in jobs}
        if not jobs:
            latest = await some(LATEST, client.jobs(page_size=LATEST))
            running = await some(RUNNING, client.jobs(JobState.RUNNING, page_size=RUNNING)) if plan else []
            chosen = {job.id: job for job in (*latest, *running)}
        attempts: list[bodies.AttemptView] = []
        for job in chosen:
            attempts += await some(0, client.attempts(job))
        planned = await client.plans() if plan else bodies.WaitingPlans(now=time.time(), plans=[])
    wanted = [one for one in planned.plans if not jobs or one.job in jobs]
    names = {job.id: job.name for job in chosen.values()} | {one.job: one.name for one in wanted}
    screen = stdout()
    found = {"attempts": attempts, "plans": wanted} if plan else attempts
    common.show(found, lambda: chart.draw(attempts, names, planned.now, screen.width, has_colour(screen), wanted))
