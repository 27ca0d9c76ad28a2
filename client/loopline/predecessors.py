"""Waiting for a job that comes after other jobs: until it enters the grid, or can never do so."""

from __future__ import annotations

import asyncio

from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import JobView

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0


async def explained_wait(client: RestClient, job: JobView) -> str:
    """Return why a waiting job waits.

    Raises LooplineError if it can never start, because a job before it failed or was cancelled.
    """
    explained = await client.explain(job.id)
    for reason in explained.reasons:
        if reason.code == "waits_in_vain":
            hint = f"`loopline retry {reason.job}`, or `loopline cancel {job.id}`"
            raise LooplineError("never_starts", f"job {job.id} {reason.detail}", hint)
    return explained.sentence


async def until_entered(client: RestClient, job: JobView) -> None:
    """Return once a job is in the grid or has ended. Raises LooplineError if it can never start."""
    pause_s = FIRST_PAUSE_S
    while job.state is JobState.WAITING:
        await explained_wait(client, job)
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
        job = await client.job(job.id)
