"""Actions of an admin at the page, and their view for others: drains, tokens, a session that ends."""

from __future__ import annotations

import aiohttp
import pytest
from playwright.async_api import Browser, expect

from tests.live.grid import Grid
from tests.web.browser import AWAY, REFUSED, Visit, visiting
from tests.web.test_page import row_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def metrics(grid: Grid, secret: str) -> int:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as session,
        session.get(f"{grid.url}/metrics") as answer,
    ):
        return answer.status


async def test_several_workers_are_drained_for_a_reason_that_stands_at_each(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await visit.show("/workers")
    for name in ("ant", "bee"):
        await page.get_by_role("checkbox", name=f"choose {name}").check()
    await page.get_by_role("button", name="Drain 2").click()
    await page.get_by_label("Reason, which users see").fill("new disks, until noon")
    await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    for name in ("ant", "bee"):
        await expect(row_of(page, name)).to_contain_text("new disks, until noon")
        assert (await grid.client().worker(name)).drain_reason == "new disks, until noon"
        await page.get_by_role("button", name=f"undrain {name}").click()
        await expect(row_of(page, name)).to_contain_text("connected")


async def test_a_token_for_prometheus_is_made_shown_once_and_revoked(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await visit.show("/master")
    await page.get_by_label("Name").fill("prometheus")
    await page.get_by_label("Role").select_option("scraper")
    await page.get_by_role("button", name="Make a token").click()
    secret = await page.locator(".secret code").inner_text()
    assert await metrics(grid, secret) == 200
    await page.reload()
    tokens = page.get_by_role("region", name="Tokens")
    await expect(tokens.get_by_role("row", name="prometheus scraper")).to_be_visible()
    assert secret not in await page.content()
    await tokens.get_by_role("row", name="prometheus scraper").get_by_role("button", name="revoke").click()
    await page.get_by_role("button", name="Revoke it").click()
    await expect(tokens.get_by_role("row", name="prometheus scraper")).to_have_count(0)
    assert await metrics(grid, secret) == 401


async def test_signed_out_user_reads_the_reason(browser: Browser, grid: Grid) -> None:
    client = grid.client()
    token = await client.create_token("guest", "reader")
    async with visiting(browser, grid.url) as visit:
        await visit.sign_in(token.secret, "/workers")
        await expect(row_of(visit.page, "ant")).to_be_visible()
        await client.revoke_token(token.id)
        await expect(visit.page.get_by_role("alert")).to_contain_text(f"Your token {token.id} was revoked")
        visit.check(REFUSED, AWAY)


async def test_a_job_that_is_not_submitted_yet_survives_a_reload(visit: Visit) -> None:
    page = visit.page
    await visit.show("/submit")
    await page.get_by_label("Command").fill("echo kept")
    await page.get_by_label("Name", exact=True).fill("draft")
    await page.reload()
    await expect(page.get_by_label("Command")).to_have_value("echo kept")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("draft")
    await page.get_by_role("button", name="Empty the form").click()
    await page.reload()
    await expect(page.get_by_label("Command")).to_have_value("")
