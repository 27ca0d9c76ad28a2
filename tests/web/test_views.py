"""What a lab looks for on the page: failures of all jobs, output of all tasks, ranks, lost PCs, the first worker."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from loopline_shared.spec import JobSpec
from tests.live.grid import Grid, wait_for
from tests.web.browser import DESKTOP, PATIENCE_MS, Visit, admin, visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=PATIENCE_MS)


def region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


async def test_failures_of_all_jobs_are_one_line_by_reason(visit: Visit, grid: Grid) -> None:
    jobs = [await grid.submit("echo no licence {i} >&2; exit 7", tasks=2, max_attempts=1) for _ in range(2)]
    for job in jobs:
        await grid.ended(job)
    await visit.show("/jobs")
    row = region(visit.page, "Failures").get_by_role("row").filter(has_text="no licence")
    await expect(row).to_have_count(1)
    await expect(row.get_by_role("cell").nth(1)).to_have_text("4")
    await expect(row).to_contain_text(f"job {jobs[1]}, job {jobs[0]}")
    await row.get_by_role("link", name=f"{jobs[1]}.").click()
    await expect(visit.page.get_by_role("heading", level=1)).to_contain_text(f"Task {jobs[1]}.")


async def test_output_of_all_tasks_is_searched(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("echo first; echo needle {i} >&2", tasks=3)
    await grid.ended(job)
    await visit.show(f"/jobs/{job}")
    section = region(visit.page, "Search all output")
    await section.get_by_role("searchbox").fill("NEEDLE")
    await expect(section.get_by_role("listitem")).to_have_count(3)
    await expect(section).to_contain_text("3 lines in all tasks")
    await section.get_by_role("link", name=f"{job}.2").click()
    await expect(visit.page.locator(".line.chosen")).to_have_text("needle 2\n", use_inner_text=True)
    await visit.page.go_back()
    await section.get_by_role("searchbox").fill("haystack")
    await expect(section).to_contain_text("No task has printed “haystack”")


async def test_jobs_are_found_by_the_day_of_their_end(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("echo", name="dated")
    ended_at = (await grid.ended(job)).finished_at
    assert ended_at is not None
    today = datetime.fromtimestamp(ended_at).astimezone()
    await visit.show("/jobs")
    page = visit.page
    over = region(page, "Over")
    await over.get_by_label("Ended from").fill(f"{today:%Y-%m-%d}")
    await over.get_by_label("to", exact=True).fill(f"{today:%Y-%m-%d}")
    await expect(row_of(page, "dated")).to_be_visible()
    await over.get_by_label("Ended from").fill(f"{today + timedelta(days=1):%Y-%m-%d}")
    await expect(over).to_contain_text("No such job")


async def test_job_of_one_task_opens_at_its_output(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("echo at once; echo 1 > made.txt", outputs=["made.txt"])
    await grid.ended(job)
    await visit.show(f"/jobs/{job}")
    sections = visit.page.get_by_role("region")
    await expect(sections.nth(0)).to_have_accessible_name("Output")
    await expect(sections.nth(0)).to_contain_text("at once")
    await expect(sections.nth(1)).to_contain_text("made.txt")


async def test_ranks_of_a_gang_have_their_own_output(visit: Visit, grid: Grid) -> None:
    job = await grid.submit('echo "I am rank $LOOPLINE_RANK"', nodes=2)
    await grid.ended(job)
    await visit.show(f"/jobs/{job}/tasks/1")
    page = visit.page
    attempts = region(page, "Attempts")
    await expect(attempts.get_by_role("columnheader", name="Rank")).to_be_visible()
    workers = page.locator("dl.facts div").filter(has_text="Workers, by rank").locator("dd")
    await expect(workers).to_have_text(re.compile("0 (ant 1 bee|bee 1 ant)"))
    await expect(page.locator("pre.log")).to_contain_text("I am rank 0")
    await page.get_by_label("rank").select_option("1")
    await expect(page.locator("pre.log")).to_contain_text("I am rank 1")
    save = page.get_by_role("link", name="save")
    assert (await save.get_attribute("href") or "").endswith("?rank=1")


async def test_away_worker_is_forgotten(visit: Visit, grid: Grid) -> None:
    await grid.start_worker("cat")
    await grid.connected("cat")
    await visit.show("/workers/cat")
    await expect(visit.page.get_by_role("button", name="forget cat")).to_have_count(0)
    await grid.kill_worker("cat")
    await visit.show("/workers")
    await visit.page.get_by_role("button", name="forget cat").click()
    await visit.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    await expect(row_of(visit.page, "cat")).to_have_count(0)

    async def is_forgotten() -> bool:
        return "cat" not in [worker.name async for worker in grid.client().workers()]

    await wait_for("the worker to be forgotten", is_forgotten)


async def test_form_takes_packages_secrets_and_a_notification(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await visit.show("/submit")
    await page.get_by_label("Command").fill("python3 fit.py")
    await page.get_by_text("Requirements, packages").click()
    await page.get_by_label("Packages", exact=True).fill("numpy==2.3.1")
    await page.get_by_label("Python of these packages").fill("3.12")
    await page.get_by_label("Allow builds").check()
    await page.get_by_label("Retry delay").fill("30s")
    await page.get_by_label("Time to save").fill("1m")
    await page.get_by_label("Secrets").fill("KEY=do-not-keep")
    await page.get_by_label("Notify").fill("https://hook.invalid/x")
    kept = await page.evaluate("sessionStorage.getItem('draft')")
    assert "numpy" in kept
    assert "do-not-keep" not in kept
    await page.get_by_role("button", name="Submit 1 task").click()
    title = page.get_by_role("heading", level=1, name=re.compile(r"^Job \d+"))
    await expect(title).to_be_visible()
    job = int(re.findall(r"\d+", await title.inner_text())[0])
    spec: JobSpec = (await grid.job(job)).spec
    await grid.client().cancel(job)
    assert spec.requires.software is not None
    software = spec.requires.software
    assert software.packages is not None
    assert (software.python, software.builds) == ("3.12", True)
    assert (spec.retry_delay_s, spec.kill_after_s) == (30.0, 60.0)
    assert spec.environment == {"KEY": "(hidden)"}
    assert spec.notify is not None
    assert spec.notify.webhook == "https://hook.invalid/x"


async def test_long_names_leave_all_columns_in_sight(visit: Visit, grid: Grid) -> None:
    job = await grid.submit("exit 1", name="x" * 200, max_attempts=1)
    await grid.ended(job)
    page = visit.page
    await page.set_viewport_size(DESKTOP)
    await visit.show("/jobs?over=failed")
    for row in await page.get_by_role("row").all():
        for cell in [*await row.get_by_role("columnheader").all(), *await row.get_by_role("cell").all()]:
            box = await cell.bounding_box()
            assert box is None or box["x"] + box["width"] <= DESKTOP["width"], await cell.inner_text()


async def test_new_views_are_open_to_all_and_fit_a_phone(visit: Visit, grid: Grid) -> None:
    sweep = JobSpec(
        command=["sh", "-c", "echo needle; exit $(({a} + {b} == 2))"],
        parameters={"a": [1, 2], "b": [1, 2]},
        max_attempts=1,
    )
    swept = (await grid.client().submit(sweep)).id
    gang = await grid.submit("echo", nodes=2)
    single = await grid.submit("echo at once")
    for job in (swept, gang, single):
        await grid.ended(job)
    views = {
        "/jobs?over=failed&from=2020-01-01": "Jobs",
        f"/jobs/{swept}?lines=needle&map=a,b&colour=took&as=table": f"Job {swept}",
        f"/jobs/{gang}/tasks/1": f"Task {gang}.1",
        f"/jobs/{single}": f"Job {single}",
        "/submit": "Submit a job",
    }
    found = list[str]()
    await visit.show()
    for view, heading in views.items():
        await visit.turn_to(view, heading)
        if view == "/submit":
            await visit.page.get_by_text("Requirements, packages").click()
        found += [f"{view}: {barrier}" for barrier in await visit.barriers()]
        found += [f"{view} scrolls sideways at {width} px" for width in await visit.too_narrow()]
    assert not found, "\n".join(found)


async def test_each_view_links_to_its_page_of_the_manual(visit: Visit) -> None:
    page = visit.page
    for path, manual in (
        ("/", "page"),
        ("/jobs", "troubleshooting"),
        ("/jobs/1/tasks/1", "failures"),
        ("/submit", "sweeps"),
    ):
        await visit.show(path)
        link = page.get_by_role("link", name="Manual", exact=True)
        assert await link.get_attribute("href") == f"/manual/{manual}.html"
        assert await page.get_by_role("link", name="API", exact=True).get_attribute("href") == "/docs"


async def test_empty_grid_leads_to_its_first_worker(browser: Browser, tmp_path: Path) -> None:
    grid = Grid(tmp_path)
    try:
        await grid.start_master()
        async with visiting(browser, grid.url) as visit:
            await visit.sign_in(admin(grid))
            first = visit.page.get_by_role("region").nth(0)
            await expect(first).to_have_accessible_name("Add a worker first")
            await expect(first).to_contain_text("loopline worker --dedicated")
            await grid.start_worker("ant")
            await expect(region(visit.page, "Add a worker first")).to_have_count(0)
            visit.check()
    finally:
        await grid.stop()
