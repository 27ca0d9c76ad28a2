"""The page as people use it: in a real Chromium, on a real master with real workers.

Elements are found as people find them, by their role and name.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from loopline_shared.spec import JobSpec
from tests.live.grid import Grid, wait_for
from tests.web.browser import AWAY, PATIENCE_MS, REFUSED, Visit, admin, visiting
from tests.worker.presence.test_login_manager import DELAY, emit, mock_logind, until_locked

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=PATIENCE_MS)

MOST_TABS = 60
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def heading(page: Page, name: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("heading", level=1, name=name)


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


@contextmanager
def held_back(grid: Grid, name: str) -> Iterator[str]:
    """Shell that waits until this is over, however it ends: the workers are for all tests."""
    gate = grid.gate(name)
    try:
        yield gate.wait
    finally:
        gate.open()


async def go(page: Page, name: str) -> None:
    await page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has this name, or this label, has the focus."""
    for _ in range(MOST_TABS):
        await page.keyboard.press("Tab")
        focused: str = await page.evaluate(
            "(({ariaLabel, labels, textContent}) => ariaLabel ?? labels?.[0]?.textContent ?? textContent)"
            "(document.activeElement)"
        )
        if focused.strip().startswith(name):
            return
    raise AssertionError(f"{name} is not reached by Tab")


async def test_a_visitor_signs_in_and_out(browser: Browser, grid: Grid) -> None:
    async with visiting(browser, grid.url) as visit:
        page = visit.page
        answer = await page.goto(f"{grid.url}/workers")
        assert answer is not None
        assert "script-src 'self'" in (await answer.header_value("content-security-policy") or "")
        await page.get_by_label("Token").wait_for()
        assert await visit.barriers() == []
        await page.get_by_label("Token").fill("ll_00000000_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("Invalid, expired or revoked token")
        await page.get_by_label("Token").fill(admin(grid))
        await page.get_by_role("button", name="Sign in").click()
        await expect(row_of(page, "ant")).to_contain_text("connected")
        assert await page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
        assert admin(grid) not in "".join(visit.requests)
        await page.reload()
        await expect(row_of(page, "bee")).to_contain_text("connected")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()
        visit.check(REFUSED)


async def test_a_job_from_the_page_to_its_end(visit: Visit) -> None:
    page = visit.page
    await visit.show()
    await go(page, "Submit")
    await page.get_by_label("Command").fill("echo <img src=x onerror=alert(1)> hello {i}")
    await page.get_by_label("Name", exact=True).fill("<i>greetings</i>")
    await page.get_by_role("button", name="Add a parameter").click()
    await page.get_by_label("Name of parameter 1").fill("i")
    await page.get_by_label("Values of parameter 1").fill("1..3")
    await expect(page.get_by_text("hello 3")).to_be_visible()
    await page.get_by_role("button", name="Submit 3 tasks").click()
    await expect(heading(page, "<i>greetings</i>")).to_be_visible()
    await expect(page.get_by_role("main").get_by_text("succeeded").first).to_be_visible()
    await page.get_by_role("link", name=re.compile(r"^\d+\.2$")).click()
    await expect(page.get_by_text("<img src=x onerror=alert(1)> hello 2", exact=True)).to_be_visible()


async def test_a_sweep_shows_its_parameters_and_back_finds_the_filter(visit: Visit, grid: Grid) -> None:
    page = visit.page
    job = await grid.submit(r"printf '\033[31mred\033[0m\n 1 %%\r99 %%\n'; exit $(({i} - 1))", tasks=2)
    await grid.ended(job)
    await visit.show(f"/jobs/{job}")
    tasks = page.get_by_role("region", name="Tasks")
    await expect(tasks.get_by_role("columnheader").nth(1)).to_have_text("i")
    await tasks.get_by_role("button", name="failed").click()
    await page.get_by_role("link", name=f"{job}.2").click()
    await expect(page.get_by_role("link", name="Previous")).to_be_visible()
    await expect(page.get_by_role("link", name="Next")).to_have_count(0)
    await page.get_by_role("button", name="stdout").click()
    await expect(page.locator("pre.log")).to_have_text("red\n99 %\n", use_inner_text=True)
    await expect(page.locator("pre.log .ink-red")).to_have_text("red")
    await page.go_back()
    await expect(tasks.get_by_role("button", pressed=True)).to_contain_text("failed")
    await visit.show("/workers/%E0%A4%A")
    await expect(heading(page, "There is no such page")).to_be_visible()


async def test_a_sweep_is_sorted_filtered_and_drawn_as_a_map(visit: Visit, grid: Grid) -> None:
    page = visit.page
    write = 'echo "{\\"loss\\": $(({a} * {b}))}" > "$LOOPLINE_RESULT"'
    submitted = await grid.client().submit(
        JobSpec(command=["sh", "-c", write], parameters={"a": [1, 2, 3], "b": [2, 4]}, size=1)
    )
    await grid.ended(submitted.id)
    await visit.show(f"/jobs/{submitted.id}")
    tasks, first = page.get_by_role("region", name="Tasks"), f"{submitted.id}.1"
    rows = tasks.get_by_role("rowheader")
    await expect(rows.first).to_have_text(first)
    await tasks.get_by_role("button", name="loss").click()
    await expect(rows.first).to_have_text(f"{submitted.id}.6")  # the largest first
    await page.get_by_role("button", name="over two parameters").click()
    picture = page.get_by_role("img", name="b across, a down: 2 × 3 cells")
    await picture.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        await page.keyboard.press(key)
    await expect(page.get_by_text("b 4, a 2")).to_be_visible()
    await expect(page.get_by_text("loss: 8")).to_be_visible()
    assert await visit.barriers() == []
    await tasks.get_by_role("searchbox").fill("loss<=4 b=2")
    await expect(rows).to_have_text([f"{submitted.id}.3", first])
    await picture.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        await page.keyboard.press(key)
    await expect(heading(page, f"Task {submitted.id}.3")).to_be_visible()
    await page.go_back()
    await expect(rows).to_have_text([f"{submitted.id}.3", first])
    await page.get_by_role("button", name="as a table").click()
    await expect(page.get_by_role("region", name="Map").get_by_role("cell")).to_have_text(
        ["2", "–", "4", "–", "–", "–"]
    )


async def test_output_is_searched_and_its_lines_are_linked(visit: Visit, grid: Grid) -> None:
    page = visit.page
    job = await grid.submit("seq 1000; echo usage; echo 'error: no such thing' >&2; echo later >&2; exit {i}")
    await grid.ended(job)
    await visit.show(f"/jobs/{job}/tasks/1")
    output = page.get_by_role("region", name="Output")
    await expect(output.get_by_role("button", pressed=True)).to_have_text("stderr")
    await output.get_by_role("button", name="both").click()
    logs = page.locator("pre.log")
    await expect(logs).to_have_count(2)
    await output.get_by_role("button", name="stdout").click()
    await output.get_by_role("searchbox").fill("99")
    await expect(output.get_by_role("status")).to_have_text("19 lines")
    await output.get_by_role("button", name="Previous").click()
    await output.get_by_role("button", name="Previous").click()
    await expect(page.locator("#stdout-998")).to_be_in_viewport()
    await page.locator("#stdout-998 > a").click()
    await expect(page).to_have_url(re.compile(r"line=stdout-998"))
    await page.reload()
    await expect(page.locator("#stdout-998.chosen")).to_be_in_viewport()
    await logs.evaluate("(log) => (log.scrollTop = 0)")
    await output.get_by_role("button", name="to the end").click()
    await expect(page.locator("#stdout-1001")).to_be_in_viewport()


async def test_a_picture_and_a_trace_to_take_home(visit: Visit, grid: Grid) -> None:
    page = visit.page
    job = await grid.submit("echo {i}", tasks=4)
    await grid.ended(job)
    await visit.show()
    await go(page, "Timeline")
    png = await taken_home(page, page.get_by_role("button", name="Save as PNG"))
    assert png.startswith(b"\x89PNG")
    svg = (await taken_home(page, page.get_by_role("button", name="Save as SVG"))).decode()
    assert svg.lstrip().startswith("<svg")
    assert "ant" in svg
    trace = json.loads(await taken_home(page, page.get_by_role("link", name="Trace")))
    assert {f"{job}.{task}" for task in range(1, 5)} <= {
        event["name"].rpartition(".")[0] for event in trace["traceEvents"]
    }, "one of each task's attempts ran, if perhaps not the first"


async def test_times_are_those_of_the_viewers_zone(visit: Visit, grid: Grid) -> None:
    job = await grid.ended(await grid.submit("true"))
    for zone, hours in (("Asia/Tokyo", 9), ("America/Phoenix", -7)):
        async with visit.in_zone(zone):
            await visit.show(f"/jobs/{job.id}")
            there = datetime.fromtimestamp(job.submitted_at, timezone(timedelta(hours=hours)))
            await expect(visit.page.get_by_text(f"{there:%Y-%m-%d %H:%M:%S}").first).to_be_visible()


async def test_the_main_path_by_keyboard_alone(browser: Browser, grid: Grid) -> None:
    async with visiting(browser, grid.url) as visit:
        page = visit.page
        await visit.open()
        await page.get_by_label("Token").wait_for()
        await tab_to(page, "Token")
        await page.keyboard.type(admin(grid))
        await page.keyboard.press("Enter")
        await page.get_by_role("navigation", name="Pages").wait_for()
        await tab_to(page, "Submit")
        await page.keyboard.press("Enter")
        await expect(heading(page, "Submit a job")).to_be_visible()
        await tab_to(page, "Command")
        await page.keyboard.type("echo typed")
        await tab_to(page, "Submit 1 task")
        await page.keyboard.press("Enter")
        await expect(heading(page, re.compile(r"^Job \d+"))).to_be_visible()
        await expect(page.get_by_text("succeeded").first).to_be_visible()
        visit.check()


async def test_a_held_job_names_its_predecessor(visit: Visit, grid: Grid) -> None:
    page = visit.page
    with held_back(grid, "held") as wait:
        first = await grid.submit(wait, size=10, max_replicas=1, name="earlier")
        await grid.attempts_when("the first to run", first, lambda all_: len(all_) == 1)
        second = await grid.submit("echo {i}", tasks=2, size=10, name="later")
        await visit.show()
        await go(page, "Jobs")
        row = page.get_by_role("region", name="Queue").get_by_role("row").filter(has_text="later")
        await expect(row).to_contain_text(f"waits for job {first}")
        await row.get_by_role("link", name="later").click()
        await expect(page.get_by_text(f"job {first} (size 10 s) entered the grid before it")).to_be_visible()
        await page.get_by_role("link", name=f"job {first}").first.click()
        await expect(heading(page, re.compile("earlier"))).to_be_visible()
    await expect(page.get_by_text("succeeded").first).to_be_visible()
    assert (await grid.ended(second)).state == "succeeded"


async def test_users_stand_in_the_order_of_their_turns_with_use_and_share(visit: Visit, grid: Grid) -> None:
    with held_back(grid, "turns") as wait:
        job = await grid.submit(wait, max_replicas=1, name="turns")
        await grid.attempts_when("it to run", job, lambda all_: len(all_) == 1)
        await grid.client().set_share("bob", 3)

        async def some_was_used() -> bool:
            return all(user.used is not None for user in (await grid.client().shares()).users)

        await wait_for("the job's use", some_was_used)
        await visit.show("/jobs")
        users = visit.page.get_by_role("region", name="Users")
        await expect(users.get_by_role("rowheader").first).to_have_text("bob")
        await expect(users.get_by_role("row").nth(1)).to_contain_text("3–0 %")
    assert (await grid.ended(job)).state == "succeeded"


async def test_task_output_appears_while_it_is_written(visit: Visit, grid: Grid) -> None:
    page = visit.page
    first, second = grid.gate("log-1"), grid.gate("log-2")
    try:
        job = await grid.submit(f"echo one; {first.wait}; echo two; {second.wait}; echo three", max_replicas=1)
        await visit.show(f"/jobs/{job}/tasks/1")
        printed = page.get_by_role("region", name="Output")
        await expect(printed).to_contain_text("as it is written")
        await expect(printed.get_by_text("one", exact=True)).to_be_visible()
        first.open()
        await expect(printed.get_by_text("one two", exact=True)).to_be_visible()
    finally:
        first.open()
        second.open()
    await expect(printed.get_by_text("one two three", exact=True)).to_be_visible()
    await expect(page.get_by_role("main").get_by_text("succeeded").first).to_be_visible()
    await expect(printed).not_to_contain_text("as it is written")


async def test_a_file_goes_there_and_a_picture_and_a_table_come_back(visit: Visit) -> None:
    """The file is dropped on the form and read by the task, whose output is shown on the page."""
    page = visit.page
    await visit.show("/submit")
    await page.get_by_label("Name", exact=True).fill("painter")
    await page.get_by_label("Command").fill("sh paint.sh {n}")
    script = f"echo {PIXEL} | base64 -d > dot.png; echo a,$1 > plots.csv; echo '<b>no page</b>' > note.html"
    await drop(page, "paint.sh", script)
    await expect(page.get_by_role("group", name="Files").get_by_role("listitem")).to_contain_text(
        re.compile(r"paint\.sh.*sent")
    )
    await page.get_by_label("Files to keep", exact=True).fill("*.png *.csv *.html")
    await page.get_by_role("button", name="Add a parameter").click()
    await page.get_by_label("Name of parameter 1").fill("n")
    await page.get_by_label("Values of parameter 1").fill("7, 8")
    await page.get_by_role("button", name="Submit 2 tasks").click()
    await page.get_by_role("link", name=re.compile(r"^\d+\.2$")).click()
    files = page.get_by_role("region", name="Files")
    picture = files.get_by_role("img", name="Picture dot.png")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
    await expect(files.get_by_text("a,8", exact=True)).to_be_visible()
    await expect(files.get_by_text("<b>no page</b>", exact=True)).to_be_visible()
    table = await taken_home(page, files.get_by_role("link", name="plots.csv"))
    assert table == b"a,8\n"
    await page.get_by_role("link", name=re.compile("^job ")).first.click()
    archive = await taken_home(page, page.get_by_role("link", name="Files", exact=True))
    with ZipFile(io.BytesIO(archive)) as zipped:
        assert {"1/plots.csv", "2/plots.csv", "2/dot.png"} <= set(zipped.namelist())
    await page.get_by_role("link", name="Submit again").click()
    await expect(page.get_by_role("group", name="Files").get_by_role("listitem")).to_contain_text(
        re.compile(r"paint\.sh.*sent")
    )


async def test_the_master_says_beforehand_what_would_come_of_a_job(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await grid.ended(await grid.submit("true", size=1))  # something to tell the time by
    await visit.show("/submit")
    await page.get_by_label("Command").fill("simulate --seed {seed}")
    await page.get_by_label("Size").fill("20s")
    tasks = page.get_by_role("region", name="Tasks")
    await expect(tasks.get_by_text(re.compile("^If submitted now: 50 % likely to end within"))).to_be_visible()
    await page.get_by_text("Requirements, packages").click()
    await page.get_by_label("Labels").fill("matlab")
    await expect(tasks.get_by_text(re.compile("no worker", re.IGNORECASE))).to_be_visible()
    await page.get_by_label("Depends on jobs").fill("999999")
    jobs = len([job async for job in grid.client().jobs()])
    await page.get_by_role("button", name="Submit 1 task").click()
    await expect(page.get_by_role("alert")).to_contain_text("999999")
    assert len([job async for job in grid.client().jobs()]) == jobs
    visit.check("status of 4")
    visit.complaints.clear()


async def test_a_job_asks_for_gpus_units_and_a_whole_worker(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await visit.show("/submit")
    await page.get_by_label("Command").fill("true")
    await page.get_by_text("Requirements, packages").click()
    await page.get_by_label("GPUs of a task").fill("1.5")
    await page.get_by_label("Units of a task").fill("matlab=two")
    await page.get_by_role("button", name="Submit 1 task").click()
    await expect(page.get_by_text("give a whole number of GPUs")).to_be_visible()
    await expect(page.get_by_label("Units of a task")).to_have_attribute("aria-invalid", "true")
    await page.get_by_label("GPUs of a task").fill("0.5")
    await page.get_by_label("Units of a task").fill("matlab=2, fpga")
    await page.get_by_label("Whole worker").check()
    async with page.expect_request(
        lambda request: request.method == "POST" and request.url.endswith("/jobs")
    ) as sent:
        await page.get_by_role("button", name="Submit 1 task").click()
    requires = (await sent.value).post_data_json["requires"]
    assert requires == {"gpus": 0.5, "needs": {"matlab": 2, "fpga": 1}, "exclusive": True}
    await expect(heading(page, re.compile("true"))).to_be_visible()
    await expect(page.get_by_text(re.compile("no worker", re.IGNORECASE)).first).to_be_visible()
    await grid.client().cancel(int(page.url.rpartition("/")[2]))


async def test_a_job_that_comes_after_another_links_to_it(visit: Visit, grid: Grid) -> None:
    page = visit.page
    with held_back(grid, "chain") as wait:
        first = await grid.submit(wait, max_replicas=1, name="gather")
        second = await grid.submit("true", after=[first], name="merge")
        await visit.show("/jobs")
        await expect(row_of(page, "merge")).to_contain_text(f"waits for job {first}")
        await row_of(page, "merge").get_by_role("link", name="merge").click()
        await expect(page.get_by_text(re.compile(f"^Waits for job {first} to succeed"))).to_be_visible()
        await page.get_by_role("definition").get_by_role("link", name=f"job {first}").click()
        await expect(heading(page, re.compile("gather"))).to_be_visible()
        await page.go_back()
    await expect(page.get_by_role("main").get_by_text("succeeded").first).to_be_visible()
    assert (await grid.ended(second)).state == "succeeded"


async def test_a_killed_worker_turns_grey(visit: Visit, grid: Grid) -> None:
    page = visit.page
    await visit.show()
    await go(page, "Workers")
    await grid.start_worker("cat")
    await expect(row_of(page, "cat")).to_contain_text("connected")
    colour = await text_colour(row_of(page, "cat"))
    await grid.kill_worker("cat")
    await expect(row_of(page, "cat")).to_contain_text("away")
    assert await text_colour(row_of(page, "cat")) != colour


async def test_sleeping_worker_says_since_when(visit: Visit, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    async with mock_logind(monkeypatch) as logind:
        await visit.show()
        await go(page, "Workers")
        await grid.start_worker("cat")
        await expect(row_of(page, "cat")).to_contain_text("connected")
        await until_locked(logind, DELAY)
        await emit(logind, "PrepareForSleep", True)
        await expect(row_of(page, "cat")).to_contain_text(re.compile("asleep *since \\d\\d:\\d\\d"))
        await row_of(page, "cat").get_by_role("link", name="cat").click()
        await expect(page.get_by_text(re.compile("has been asleep for .*, suspended"))).to_be_visible()
        await grid.stop_worker("cat")


async def test_page_continues_after_a_restart_of_the_master(visit: Visit, grid: Grid) -> None:
    page = visit.page
    with held_back(grid, "restart") as wait:
        job = await grid.submit(wait, max_replicas=1, name="survivor")
        await visit.show("/jobs")
        await expect(row_of(page, "survivor")).to_contain_text("running")
        await page.evaluate("window.neverReloaded = true")
        await grid.kill_master()
        await expect(page.get_by_role("alert").filter(has_text="has not answered since")).to_be_visible()
        await expect(row_of(page, "survivor")).to_be_visible()
        await grid.start_master()
        await expect(page.get_by_role("alert")).to_have_count(0)
        await grid.connected("ant", "bee")
    assert (await grid.ended(job)).state == "succeeded"
    await expect(row_of(page, "survivor").filter(has_text="succeeded")).to_be_visible()
    assert await page.evaluate("window.neverReloaded")
    visit.check(AWAY)
    visit.complaints.clear()


async def test_page_reconnects_on_waking_up_and_when_the_network_is_back(browser: Browser, grid: Grid) -> None:
    async with visiting(browser, grid.url) as visit:
        page = visit.page
        streams = re.compile(r"/api/v1/events\?")
        await page.clock.install()
        await visit.sign_in(admin(grid), "/jobs")
        lamp = page.locator(".lamp")
        await expect(lamp).to_have_text("live")
        async with page.expect_request(streams):
            await page.clock.fast_forward(8_000)  # as after a sleep that is shorter than the silence of a master
        await expect(lamp).to_have_text("live")
        await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))  # from now on no timer tries again
        await page.context.set_offline(True)
        await page.evaluate("dispatchEvent(new Event('offline'))")
        async with page.expect_request(streams):
            await page.context.set_offline(False)
        await expect(lamp).to_have_text("live")
        visit.check(AWAY)


async def test_a_reader_looks_and_touches_nothing(browser: Browser, grid: Grid) -> None:
    reader = await grid.client().create_token("guest", "reader")
    with held_back(grid, "reader") as wait:
        await grid.submit(wait, max_replicas=1, name="not-yours")
        async with visiting(browser, grid.url) as visit:
            page = visit.page
            await visit.sign_in(reader.secret, "/jobs")
            await expect(row_of(page, "not-yours")).to_contain_text("running")
            assert await page.get_by_role("button", name=re.compile("^(cancel|pause) job")).count() == 0
            assert await page.get_by_role("link", name="Submit", exact=True).count() == 0
            await visit.turn_to("/submit", "Submit")
            await expect(page.get_by_text("Your token is read-only")).to_be_visible()
            visit.check()


async def test_every_page_is_open_to_all_light_and_dark_and_fits_a_phone(visit: Visit, grid: Grid) -> None:
    over = await grid.submit("echo {i}; exit {i}", tasks=2, size=1, max_attempts=1)
    await grid.ended(over)
    with held_back(grid, "open") as wait:
        running = await grid.submit(wait, tasks=3, size=10, max_replicas=1)
        await grid.submit("true", size=10)
        views = {
            "/timeline": "Timeline",
            "/jobs": "Jobs",
            f"/jobs/{over}": f"Job {over}",
            f"/jobs/{running}": f"Job {running}",
            f"/jobs/{over}/tasks/2": f"Task {over}.2",
            "/workers": "Workers",
            "/workers/ant": "ant",
            "/guarantee": "The order guarantee",
            "/master": "The master",
            "/submit": "Submit a job",
            "/jobs/1/nowhere": "There is no such page",
            "/": "Overview",
        }
        found = list[str]()
        await visit.show()
        for view, heading in views.items():
            await visit.turn_to(view, heading)
            found += [f"{view}: {barrier}" for barrier in await visit.barriers()]
            found += [f"{view} scrolls sideways at {width} px" for width in await visit.too_narrow()]
    assert not found, "\n".join(found)


async def test_the_browser_enforces_the_policy(browser: Browser, grid: Grid) -> None:
    """And these tests would notice a violation."""
    async with visiting(browser, grid.url) as visit:
        await visit.open()
        await visit.page.get_by_label("Token").wait_for()
        await visit.page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.wasRun = true";
                document.body.append(script);
                document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.wasRun = true'>");
                return fetch("http://outside.example/").catch(() => null);
            }"""
        )
        assert not await visit.page.evaluate("window.wasRun")

        async def heard() -> bool:
            parts = (
                "script-src-elem by inline",
                "script-src-attr by inline",
                "connect-src by http://outside.example/",
            )
            return all(any(f"policy violated: {part}" in said for said in visit.complaints) for part in parts)

        await wait_for("the violations", heard)


async def drop(page: Page, name: str, text: str) -> None:
    """A file, dragged onto the form."""
    carried = await page.evaluate_handle(
        """([name, text]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([text], name));
            return carried;
        }""",
        [name, text],
    )
    await page.get_by_text("Drop files here").dispatch_event("drop", {"dataTransfer": carried})


async def taken_home(page: Page, by: Locator) -> bytes:
    """What a click downloads."""
    async with page.expect_download() as download:
        await by.click()
    return Path(await (await download.value).path()).read_bytes()


async def text_colour(row: Locator) -> str:
    """As it is painted."""
    colour: str = await row.get_by_role("rowheader").evaluate(
        "(name) => getComputedStyle(name).color + getComputedStyle(name.parentElement).opacity"
    )
    return colour
