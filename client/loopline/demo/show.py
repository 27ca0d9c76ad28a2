"""``loopline demo``: run the demo and show its results."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from loopline.cli.common import Common, has_colour, some, stderr, stdout
from loopline.cli.errors import Exit
from loopline.cli.render import tables
from loopline.cli.render.chart import draw as draw_chart
from loopline.demo import story
from loopline.local.local_grid import LocalGrid, running
from loopline.local.stopping import run_until_stopped
from loopline_shared.rest.bodies import AttemptView, JobDetail, PassingReport

WORKERS = ("pc-1", "pc-2")
SLOTS = 2
CHART_COLUMNS = 150
PICTURE = Path("loopline-demo", "mandelbrot.png")


def demo(*, keep: bool = False, json: bool = False) -> int:
    """Show a whole grid at work on this computer, in half a minute.

    Starts a master and two workers, and submits three jobs: a picture, a smaller job that overtakes it, and a third
    of equal size that must wait for the second. Shows which worker ran what, replicas included, and names the file
    with the finished picture; then stops everything that it started.

    Parameters
    ----------
    keep
        Leave the grid running afterwards, to play with, until Ctrl-C.
    json
        Answer with JSON on stdout, and nothing else.
    """
    console = stderr() if json else stdout()
    closing_words = "stopped; nothing of the demo is left running"
    return run_until_stopped(_demo(console, keep, Common(json=json)), lambda: console.print(closing_words))


async def _demo(console: Console, keep: bool, common: Common) -> int:
    begun = time.monotonic()
    console.print(f"starting a master and {len(WORKERS)} workers with {SLOTS} slots each")
    async with running(WORKERS, SLOTS) as grid, grid.client() as client:
        tasks = sum(job.task_count for job in story.JOBS)
        console.print(f"both are connected; submitting {len(story.JOBS)} jobs, {tasks} tasks in all")
        jobs = await story.tell(client, console)
        await story.draw(client, jobs[0], PICTURE)
        attempts = [attempt for job in jobs for attempt in await some(0, client.attempts(job.id))]
        shown = DemoResults(jobs, attempts, await client.passing(), await story.estimate(client, jobs[1:]), begun)
        common.show(shown.document(), lambda: shown.picture(console))
        if keep:
            await _keep(grid, console)
    return Exit.OK


async def _keep(grid: LocalGrid, console: Console) -> None:
    console.print(
        f"\nthe grid stays until Ctrl-C; in another terminal:\n"
        f"  export LOOPLINE_MASTER={grid.url} LOOPLINE_TOKEN_FILE={grid.admin_token}\n"
        f"  loopline submit --wait -- hostname"
    )
    await asyncio.Event().wait()


@dataclass(frozen=True)
class DemoResults:
    """Results that the demo shows at its end."""

    jobs: list[JobDetail]
    attempts: list[AttemptView]
    passing: PassingReport
    pi: float
    begun: float

    def document(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {
            "jobs": self.jobs, "attempts": self.attempts, "passing": self.passing,
            "pi": self.pi, "picture": str(PICTURE), "took_s": time.monotonic() - self.begun,
        }  # fmt: skip

    def picture(self, console: Console) -> RenderableType:
        """Return the results for a terminal."""
        names = {job.id: job.name for job in self.jobs}
        columns = min(console.width, CHART_COLUMNS)
        chart = draw_chart(self.attempts, names, time.time(), columns, has_colour(console))
        outcome = Text(f"pi is about {self.pi:.4f}; the picture is in ").append(f"./{PICTURE}", "bold")
        return Group(chart, Text(), tables.passing(self.passing), outcome)
