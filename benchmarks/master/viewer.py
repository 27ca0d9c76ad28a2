"""Cost of a viewer: bytes a second that the page loads while it shows a busy grid, in headless Chromium, by view.

A real master with many queued jobs and a swarm of light workers (benchmarks/light) that bring a few results a second.
The bytes are counted on the wire, compressed and with the change stream, after the view has settled; beside them the
processor time of the master a second, with the viewer and without.

    python -m benchmarks.master.viewer [--jobs 2000] [--workers 200] [--seconds 20] [--views / /jobs] [--json]

With ``--viewers 50``, 50 viewers without a browser: each holds the stream of changes as the page does, and repeats
the page's recorded requests for the view, as often as the page may.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from playwright.async_api import Page, async_playwright

from benchmarks.light.workers import Tally, swarm
from benchmarks.master.swarm import SLOTS, cpu_s, master
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

VIEWS = ("/", "/jobs", "/workers", "/timeline", "/jobs/1")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
TASKS = 50  # of each job
TASK_S = 30.0
REST_S = 10.0  # of a light worker, before each Report: 200 of them bring 40 results a second
SETTLE_S = 6.0
BUDGET_BYTES_S = 30_000  # of web/src/live/budget.ts


class Wire:
    """What a page has asked for and received, by path."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.asked: dict[str, str] = {}  # the latest address of each path
        self._paths: dict[str, str] = {}

    async def watch(self, page: Page) -> None:
        session = await page.context.new_cdp_session(page)
        session.on("Network.requestWillBeSent", self._asked)
        session.on("Network.dataReceived", self._received)
        await session.send("Network.enable")

    def _asked(self, event: dict[str, Any]) -> None:
        path, _, query = event["request"]["url"].partition("?")
        self._paths[event["requestId"]] = path = path.partition("/api/v1")[2]
        self.asked[path] = f"{path}?{query}" if query else path

    def _received(self, event: dict[str, Any]) -> None:
        came = event["encodedDataLength"] or (
            event["dataLength"] if self._paths.get(event["requestId"]) == "/events" else 0
        )
        self.bytes[self._paths.get(event["requestId"], "?")] += came


async def fill(url: str, jobs: int) -> None:
    """Submit the jobs."""
    async with AsyncClient(url, None) as client:
        for number in range(jobs):
            spec = JobSpec(
                name=f"queued {number}",
                size=TASK_S,
                command=["work", "{i}"],
                parameters={"i": Range(range=[1, TASKS])},
            )
            await client.submit(spec)


async def measure(
    url: str, views: list[str], seconds: float, process: psutil.Process, viewers: int
) -> list[dict[str, Any]]:
    """Show each view for ``seconds``."""
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium is installed (Debian: apt install chromium)")
    alone = await _cpu_share(process, seconds, lambda: None)
    rows = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for view in views:
            page, wire = await browser.new_page(), Wire()
            await wire.watch(page)
            await page.goto(url + view)
            await asyncio.sleep(SETTLE_S)
            share = await _cpu_share(process, seconds, wire.bytes.clear)
            paths = {path: round(came / seconds / 1000, 1) for path, came in wire.bytes.most_common(4)}
            kb_s = round(wire.bytes.total() / seconds / 1000, 1)
            rows.append({"view": view, "kb_s": kb_s, "cpu": share, "cpu_alone": alone, "by_path": paths})
            await page.close()
            if viewers:
                read = [wire.asked[path] for path in paths if path in wire.asked and path != "/events"]
                rows[-1]["crowd"], rows[-1]["answers_s"] = await crowd(url, viewers, read, seconds, process)
        await browser.close()
    return rows


async def look(http: aiohttp.ClientSession, url: str, paths: list[str], answers: Counter[str]) -> None:
    """Be a viewer: read all paths after each change, within the page's budget; for ever."""
    seen = ""
    async with http.get(f"{url}/api/v1/events", params={"rest_s": "1"}) as events:
        news = asyncio.Event()

        async def hear() -> None:
            nonlocal seen
            async for line in events.content:
                if line.startswith(b"id: "):
                    seen = line[4:].strip().decode()
                    news.set()

        hearing = asyncio.create_task(hear())
        try:
            while True:
                await news.wait()
                news.clear()
                came = 0
                for path in paths:
                    async with http.get(f"{url}/api/v1{path}", headers={"X-Loopline-Seen": seen}) as answer:
                        came += int(answer.headers.get("Content-Length", 0))
                        await answer.read()
                        answers[path] += 1
                await asyncio.sleep(max(0.7, came / BUDGET_BYTES_S))
        finally:
            hearing.cancel()


async def crowd(
    url: str, viewers: int, paths: list[str], seconds: float, process: psutil.Process
) -> tuple[float, float]:
    """Return the master's share of a core with these viewers, and their answers a second."""
    answers = Counter[str]()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as http:
        looking = [asyncio.create_task(look(http, url, paths, answers)) for _ in range(viewers)]
        await asyncio.sleep(SETTLE_S)
        share = await _cpu_share(process, seconds, answers.clear)
        answers_s = answers.total() / seconds
        assert not any(one.done() for one in looking), "a viewer was turned away"
        for one in looking:
            one.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
    return share, round(answers_s, 1)


async def _cpu_share(process: psutil.Process, seconds: float, begin: Callable[[], None]) -> float:
    begin()
    before = cpu_s(process)
    await asyncio.sleep(seconds)
    return round((cpu_s(process) - before) / seconds, 2)


@dataclass(frozen=True)
class BusyGrid:
    """A master with queued jobs, and the task that brings results of a swarm, which are counted."""

    process: psutil.Process
    url: str
    tally: Tally
    bringing: asyncio.Task[Any]


@asynccontextmanager
async def busy_grid(options: argparse.Namespace) -> AsyncIterator[BusyGrid]:
    """Yield a grid of jobs and workers, once its workers have reported."""
    with tempfile.TemporaryDirectory() as folder, master(Path(folder)) as (process, url):
        await fill(url, options.jobs)
        tally = Tally(options.jobs * TASKS)
        bringing = asyncio.create_task(swarm(url, {}, options.workers, SLOTS, tally, rest_s=options.rest))
        try:
            await asyncio.sleep(2 * options.rest)
            yield BusyGrid(process, url, tally, bringing)
        finally:
            bringing.cancel()
            with suppress(asyncio.CancelledError, AssertionError):  # a link that ends before its work says so
                await bringing


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    async with busy_grid(options) as grid:
        began = grid.tally.acknowledged
        rows = []
        for view in options.views:
            rows += await measure(grid.url, [view], options.seconds, grid.process, options.viewers)
            assert not grid.bringing.done(), f"the swarm ended during {view}: what was measured means nothing"
        assert grid.tally.acknowledged > began, "the grid stands still"
    return rows


def parser(doc: str | None, views: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the options of a busy grid and its views."""
    asking = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--jobs", type=int, default=2000)
    asking.add_argument("--workers", type=int, default=200)
    asking.add_argument("--rest", type=float, default=REST_S, help="seconds between a worker's reports")
    asking.add_argument("--views", nargs="+", default=list(views))
    asking.add_argument("--json", action="store_true")
    return asking


def main() -> None:
    asking = parser(__doc__, VIEWS)
    asking.add_argument("--seconds", type=float, default=20)
    asking.add_argument("--viewers", type=int, default=0, help="so many at once, without a browser")
    options = asking.parse_args()
    rows = asyncio.run(run(options))
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'view':12} {'kB/s':>8} {'cores':>6} {'alone':>6} {'crowd':>6} {'answers/s':>9}  by path, kB/s")
    for row in rows:
        alone = f"{row['view']:12} {row['kb_s']:8} {row['cpu']:6} {row['cpu_alone']:6}"
        print(f"{alone} {row.get('crowd', '-'):>6} {row.get('answers_s', '-'):>9}  {row['by_path']}")


if __name__ == "__main__":
    main()
