"""Takes the page's pictures in docs/pictures/ from a grid of this computer: python docs/page_pictures.py [SECONDS]

Ten workers run the jobs of four users, mostly tasks that only sleep; after ``SECONDS`` (240) a Chromium opens the
page. The requirements are those of the page's tests.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.async_api import ViewportSize

from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid
from tests.web.browser import Visit, running_browser, visiting

PICTURES = Path(__file__).parent / "pictures"
DESK: ViewportSize = {"width": 1280, "height": 860}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
WORKERS = {**{f"lab-{number:02}": 2 for number in range(1, 9)}, "render-a": 4, "render-b": 4}
"""Slots by worker."""
USERS = ("ana", "ben", "chen", "dora")
PROGRAMS = {"fit-spectra": 3.0, "ising": 4.0, "pi": 2.0, "protein-fold": 8.0, "render-frames": 6.0}
"""Mean seconds of a task by the job's name."""
MOST_JOBS = 7
"""As many are in the grid at once."""
WORK = 'test $(({i} % 23)) = 22 && { echo "no convergence after 400 steps" >&2; exit 3; }; sleep {s}; echo "task {i}"'


def a_job(chance: random.Random) -> JobSpec:
    name = chance.choice(list(PROGRAMS))
    tasks, mean_s = chance.randrange(8, 26), PROGRAMS[name]
    seconds = round(chance.uniform(0.6, 1.4) * mean_s, 1)
    return JobSpec(
        name=name,
        command=["sh", "-c", WORK.replace("{s}", f"{seconds}")],
        parameters={"i": Range(range=[1, tasks])},
        size=tasks * seconds,
        max_attempts=1 if chance.random() < 0.2 else 3,
    )


async def work(grid: Grid, seconds: float) -> None:
    """Keep the grid busy with jobs of all users, for a number of seconds."""
    chance, admin = random.Random(7), grid.client()  # noqa: S311 - the same jobs each time
    tokens = [(await admin.create_token(name, "user")).secret for name in USERS]
    for _ in range(int(seconds)):
        live = [job async for job in admin.jobs() if job.finished_at is None]
        if len(live) < MOST_JOBS:
            async with AsyncClient(grid.url, chance.choice(tokens)) as user:
                await user.submit(a_job(chance))
        await asyncio.sleep(1.0)


async def take(visit: Visit, path: str, name: str, scheme: str = "light") -> None:
    await visit.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await visit.show(path)
    await visit.page.wait_for_timeout(1500)  # drawing follows reading
    await visit.page.screenshot(path=PICTURES / f"{name}.png")


async def main(seconds: float) -> None:
    async with running_browser() as browser:
        with tempfile.TemporaryDirectory() as folder:
            grid = Grid(Path(folder))
            try:
                await grid.start_master("--report-every-s", "1")
                for name, slots in WORKERS.items():
                    await grid.start_worker(name, slots=slots)
                await grid.connected(*WORKERS)
                await work(grid, seconds)
                token = (grid.data_dir / "tokens" / "admin").read_text().strip()
                held = max([job.id async for job in grid.client().jobs() if job.held], default=1)
                async with visiting(browser, grid.url, viewport=DESK) as visit:
                    await visit.sign_in(token)
                    await take(visit, "/", "page-overview")
                    await take(visit, "/timeline", "page-timeline")
                    await take(visit, "/timeline", "page-timeline-dark", "dark")
                    await take(visit, f"/jobs/{held}", "page-job-dark", "dark")
                    await take(visit, "/guarantee", "page-guarantee")
                    await take(visit, f"/submit?like={held}", "page-submit")
                async with visiting(browser, grid.url, **PHONE) as visit:
                    await visit.sign_in(token)
                    await take(visit, "/", "page-phone")
            finally:
                await grid.stop()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 240.0))
