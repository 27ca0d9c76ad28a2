"""REST, command line and page say the same of a job, its tasks and its workers: the master computes it once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from loopline.cli.render import human
from loopline_shared.job.requirements import Requirements
from loopline_shared.rest.bodies import Period
from tests.live.grid import Grid
from tests.live.test_looking import loopline
from tests.web.browser import PATIENCE_MS, Visit

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=PATIENCE_MS)


async def rest_says(grid: Grid, *words: str) -> Any:
    """The body that REST answers, as ``--json`` prints it."""
    return json.loads(await loopline(grid, *words, "--json"))


def duration(period: dict[str, Any]) -> str:
    assert period["until"] is not None, "the period has ended"
    return human.period(Period.model_validate(period), 0.0)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def fact(page: Page, name: str) -> Locator:
    return page.locator("dl.facts div").filter(has=page.locator("dt", has_text=name)).locator("dd")


async def test_ended_job_has_the_same_times_and_counts_everywhere(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("exit $(({i} == 2))", tasks=3, max_attempts=1, name="mostly")
    await grid.ended(job)
    rest = await rest_says(grid, "job", str(job))
    took, waited = duration(rest["took"]), duration(rest["waited"])
    progress = "2 of 3, 1 failed"
    assert rest["condition"] == "failed"
    assert (rest["tasks"]["succeeded"], rest["tasks"]["failed"]) == (2, 1)

    listed = next(line for line in (await loopline(grid, "jobs")).splitlines() if " mostly " in line)
    assert {"failed", progress, took} <= set(cells(listed))
    shown = await loopline(grid, "job", str(job))
    facts = {words[0]: words[1:] for line in shown.splitlines() if (words := cells(line))}
    assert (facts["took"], facts["waited"], facts["tasks"]) == ([took], [waited], [progress])

    await visit.show("/jobs?over=failed")
    row = visit.page.get_by_role("row").filter(has=visit.page.get_by_role("rowheader", name="mostly"))
    for text in ("failed", progress, took):
        await expect(row).to_contain_text(text)
    await visit.show(f"/jobs/{job}")
    await expect(fact(visit.page, "Took")).to_have_text(took)
    await expect(fact(visit.page, "Waited")).to_have_text(waited)
    await expect(visit.page.locator(".progress").first).to_have_text(progress)


async def test_failed_task_has_the_same_time_and_reason_everywhere(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("exit 3", max_attempts=2, name="silent")
    await grid.ended(job)
    [rest] = await rest_says(grid, "tasks", str(job))
    took = human.duration(rest["wall_s"])
    assert rest["reason"] == "exit code 3"
    listed = next(line for line in (await loopline(grid, "tasks", str(job))).splitlines() if f"{job}.1" in line)
    assert {took, rest["reason"]} <= set(cells(listed))
    await visit.show(f"/jobs/{job}/tasks/1")
    await expect(fact(visit.page, "Took")).to_have_text(took)
    await expect(fact(visit.page, "Reason")).to_have_text(rest["reason"])
    last = visit.page.get_by_role("row").filter(has=visit.page.get_by_role("rowheader", name=f"{job}.1.2"))
    await expect(last).to_contain_text(took)
    explained = await rest_says(grid, "explain", f"{job}.1")
    sentence = explained["sentence"]
    assert sentence in await loopline(grid, "explain", f"{job}.1")
    await expect(visit.page.locator("p.explained")).to_have_text(f"{sentence[0].upper()}{sentence[1:]}.")


async def test_paused_job_waits_for_no_other_job_anywhere(visit: Visit, grid: Grid) -> None:
    with_gate = grid.gate("stalled")
    first = await grid.submit(with_gate.wait, size=10, max_replicas=1, name="before")
    paused = await grid.submit("echo {i}", tasks=2, size=10, name="asleep")
    try:
        await loopline(grid, "pause", str(paused))
        rest = await rest_says(grid, "job", str(paused))
        assert rest["condition"] == "paused"
        listed = next(line for line in (await loopline(grid, "jobs")).splitlines() if " asleep " in line)
        assert "paused" in cells(listed)
        await visit.show("/jobs")
        row = visit.page.get_by_role("row").filter(has=visit.page.get_by_role("rowheader", name="asleep"))
        await expect(row).to_contain_text("paused")
        await expect(row).not_to_contain_text("waits for")
    finally:
        with_gate.open()
        await loopline(grid, "resume", str(paused))
    for job in (first, paused):
        await grid.ended(job)


async def test_energy_has_the_same_figures_everywhere(visit: Visit, grid: Grid) -> None:
    await grid.start_worker("metered", "--watts-idle", "40", "--watts-busy", "90", "--label", "metered")
    burns = "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done"
    await grid.ended(await grid.submit(burns, requires=Requirements(labels=["metered"])))
    shown = await loopline(grid, "energy", "--by", "worker")
    total = next(line.removeprefix("total: ") for line in shown.splitlines() if line.startswith("total: "))
    assert not total.startswith("0 Wh")
    assert [words for line in shown.splitlines() if (words := cells(line))[:1] == ["metered"]]
    await visit.show("/guarantee")
    await expect(visit.page.get_by_text("Energy:")).to_have_text(f"Energy: {total} (from declared watts).")
