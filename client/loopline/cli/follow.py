"""Following a job until it is over: the option ``--wait``."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import RenderableType
from rich.text import Text

from loopline.cli.common import PATIENCE_S, Common, stderr
from loopline.cli.errors import Exit
from loopline.cli.render import human, tables
from loopline.cli.render.bars import Show, bars
from loopline.client import AsyncClient
from loopline.predecessors import FIRST_PAUSE_S, LONGEST_PAUSE_S, explained_wait
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import JobDetail, JobView

OPEN = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)


async def follow(job: int, common: Common, warnings: Sequence[str] = ()) -> int:
    """Show the progress of a job until it is over, and then its outcome; Ctrl-C leaves the job running."""
    console = stderr()
    for warning in warnings:
        console.print(Text(f"warning: {warning}", "yellow"), soft_wrap=True)
    goes_on = f"job {job} continues; follow it again with"
    with interruptible(common, goes_on, "job", str(job), "--wait"):
        async with common.client() as client:
            with bars(console) as show:
                view = await show_until_over(client, job, show)
    common.show(view, lambda: outcome(view))
    return Exit.OK if view.state == JobState.SUCCEEDED else Exit.FAILED


@contextmanager
def interruptible(common: Common, what_goes_on: str, *words: str) -> Iterator[None]:
    """Say after Ctrl-C what continues without us, and with which command to come back to it."""
    try:
        yield
    except asyncio.CancelledError:
        again = shlex.join(["loopline", *words, *(["--master", common.master] if common.master else [])])
        stderr().print(f"\n{what_goes_on}: {again}", soft_wrap=True)
        raise


async def show_until_over(client: AsyncClient, job: int, show: Show) -> JobDetail:
    """Show the job again and again until it is over, and return it.

    Raises LooplineError if it can never start.
    """
    view, heard, pause_s = await _look(client, job, show), time.monotonic(), FIRST_PAUSE_S
    while view.state in OPEN:
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
        try:
            view, heard = await _look(client, job, show), time.monotonic()
        except LooplineError as error:
            if error.code != "unreachable" or time.monotonic() - heard > PATIENCE_S:
                raise
            show(view, "no master answers; waiting for it")
    return view


async def _look(client: AsyncClient, job: int, show: Show) -> JobDetail:
    view = await client.job(job)
    show(view, await _note(client, view))
    return view


async def _note(client: AsyncClient, job: JobView) -> str:
    """Return what the counts do not say: the reason for waiting, or the number of replicas.

    Raises LooplineError if a job before it failed or was cancelled.
    """
    if job.state not in OPEN:
        return job.state
    if job.state == JobState.WAITING:
        return await explained_wait(client, job)
    if job.held or not job.tasks.running:
        return (await client.explain(job.id)).sentence
    if job.tasks.queued:
        return ""
    attempts = 0
    async for worker in client.workers():
        attempts += sum(attempt.job == job.id for attempt in worker.running)
    replicas = attempts - (job.tasks.running - job.tasks.prefetched)
    return human.plural(replicas, "replica") if replicas > 0 else ""


def outcome(job: JobDetail) -> RenderableType:
    """Return the outcome of a job in a line."""
    now = job.finished_at or job.submitted_at
    took = f" after {human.period(job.took, now)}" if job.took is not None else ""
    line = Text.assemble("job ", (f"{job.id} {job.name} ", "bold"), tables.state(job.state), took)
    line.append(f" (waited {human.period(job.waited, now)}): {tables.counts(job)}")
    if job.was_held is not None:
        line.append(f", held for {human.period(job.was_held, now)}")
    if job.tasks.failed:
        line.append(f"\nwhy: loopline explain {job.id}; each of them: loopline tasks {job.id} --state failed", "dim")
    return line
