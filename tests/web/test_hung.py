"""A master that is there, and answers nothing: the page does not call it live, and comes back by itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.live.grid import Grid
from tests.web.browser import AWAY, visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")

SILENT_MS = 60_000  # the page takes a master for away after 15 s


@pytest.mark.campaign
async def test_a_master_that_hangs_is_not_called_live(browser: Browser, tmp_path: Path) -> None:
    grid = Grid(tmp_path)
    try:
        await grid.start_master()
        async with visiting(browser, grid.url) as visit:
            await visit.sign_in((grid.data_dir / "tokens" / "admin").read_text().strip(), "/jobs")
            lamp = visit.page.locator(".lamp")
            await expect(lamp).to_have_text("live")
            assert grid.master is not None
            grid.master.send_signal(signal.SIGSTOP)
            await expect(lamp).not_to_have_text("live", timeout=SILENT_MS)
            grid.master.send_signal(signal.SIGCONT)
            await expect(lamp).to_have_text("live", timeout=SILENT_MS)
            visit.check(AWAY)
    finally:
        await grid.stop()
