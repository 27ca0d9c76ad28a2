"""A queue that is longer than the page's window: its head is shown, and the master counts all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from loopline_shared.job.requirements import Requirements
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid
from tests.web.browser import PATIENCE_MS, visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=PATIENCE_MS)

JOBS = 510  # in the grid; one more waits outside it
AT_ONCE = 50
WINDOW = 500
NOWHERE = Requirements(labels=["nowhere"])


@pytest_asyncio.fixture(loop_scope="module")
async def grid(browser: Browser, tmp_path: Path) -> AsyncIterator[Grid]:
    """A master without workers, and a long queue."""
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--single-task-order", "hold")
        client = grid.client()
        queued = [
            JobSpec(name=f"queued-{number}", command=["true"], size=60, requires=NOWHERE)
            for number in range(1, JOBS + 1)
        ]
        await client.submit(queued[0])
        for at in range(1, JOBS, AT_ONCE):
            await asyncio.gather(*map(client.submit, queued[at : at + AT_ONCE]))
        await client.submit(JobSpec(name="merge", command=["true"], after=[JOBS]))
        yield grid
        await grid.check()
    finally:
        await grid.stop()


async def test_the_head_of_a_long_queue_is_shown_with_totals(browser: Browser, grid: Grid) -> None:
    async with visiting(browser, grid.url) as visit:
        await visit.sign_in((grid.data_dir / "tokens" / "admin").read_text().strip(), "/jobs")
        queue = visit.page.get_by_role("region", name="Queue")
        names = queue.get_by_role("rowheader")
        await expect(queue).to_contain_text(f"{JOBS} jobs in the grid")
        await expect(queue).to_contain_text("1 waiting for other jobs to succeed")
        await expect(queue).to_contain_text(f"Showing the first 200 of {JOBS + 1} jobs.")
        await expect(names.first).to_contain_text("queued-1")
        await queue.get_by_role("button", name=f"Show the first {WINDOW}").click()
        await expect(queue).to_contain_text(f"Showing the first {WINDOW} of {JOBS + 1} jobs.")
        await expect(queue.get_by_role("table")).to_have_attribute("aria-rowcount", str(WINDOW + 1))
        await visit.page.evaluate("scrollTo(0, 0)")  # rows that are far away are not drawn
        await expect(names.first).to_contain_text("queued-1")
        shown = {name.split()[0] for name in await names.all_inner_texts()}
        links = await queue.get_by_role("cell").get_by_role("link").all_inner_texts()
        holders = {link.removeprefix("job ") for link in links if link.startswith("job ")}
        assert holders == {"1"} <= shown, "what a job waits for is on the page"
        await visit.show("/")
        tallies = visit.page.locator(".tally")
        in_grid = tallies.filter(has_text="Jobs in the grid")
        await expect(in_grid).to_contain_text(f"{JOBS}{JOBS - 1} held, 1 waiting for others")
        await expect(tallies.filter(has_text="Tasks waiting")).to_contain_text(str(JOBS))
        visit.check()
