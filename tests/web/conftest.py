from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.live.grid import SHORTEST_LEASE_S, Grid
from tests.web.browser import Visit, admin, running_browser, visiting


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of a module: each visitor has a context of their own, which costs a fraction of a start."""
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    """A master and two workers of one slot each, for all tests of a module; the browser comes first: no browser, no
    grid. It ends with the audit and the replay of its log.
    """
    grid = Grid(tmp_path_factory.mktemp("grid"))
    try:
        await grid.start_master("--lease-s", str(SHORTEST_LEASE_S), "--report-every-s", "0.5")
        for name in ("ant", "bee"):
            await grid.start_worker(name)
        await grid.connected("ant", "bee")
        yield grid
        await grid.check()
    finally:
        await grid.stop()
    await grid.no_processes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admins_visit(browser: Browser, grid: Grid) -> AsyncIterator[Visit]:
    """An admin who signs in once, because a new browser context with a sign-in takes longer than most tests."""
    async with visiting(browser, grid.url) as visit:
        await visit.sign_in(admin(grid))
        yield visit


@pytest_asyncio.fixture(loop_scope="module")
async def visit(admins_visit: Visit) -> AsyncIterator[Visit]:
    """A signed-in admin with a clean state. A test begins with ``show``, which loads the page.

    At the end, the page must have sent requests only to the master, and have no complaints.
    """
    await admins_visit.forget()
    yield admins_visit
    admins_visit.check()
